"""The pipeline: one object for drawing, editing, in-painting and answering.

A `diffusers.DiffusionPipeline`: components, devices, offloading, progress bars, callbacks and interruption work as
in any other. It turns requests into rows of a canvas, runs the one loop, and turns the rows back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline, VQModel
from diffusers.utils import BaseOutput
from PIL import Image
from transformers import AutoTokenizer

from dimoo import __version__
from dimoo.canvas import Canvas
from dimoo.checkpoint import forget_places, naming, read_defaults, write_index
from dimoo.combinations import refuse
from dimoo.images import load_image, load_mask
from dimoo.locate import locate
from dimoo.model.llada import LLaDAForMultiModalGeneration
from dimoo.resolve import choices
from dimoo.sampling import Step, denoise
from dimoo.search import Tries, search
from dimoo.seeds import Start, seeds_for
from dimoo.settings import Defaults, Settings
from dimoo.tasks import TASKS, Ask, Codec, Edit, Infill, Inpaint, Rewrite, Task, Text, TextToImage, expand
from dimoo.tasks.base import to_pixels
from dimoo.text import TextTokenizer
from dimoo.vocab import Vocab, is_text_only
from tokenizers_vq import VQImageTokenizer

OUTPUT_TYPES = ("pil", "np", "pt", "tokens")
CALLBACK_TENSORS = ("ids", "lengths", "rows", "confidence", "write")
"""(B, T) canvas, (B,) lengths of its rows; and of this step, all (B, M): positions, probabilities, what was written."""


@dataclass
class DiMOOPipelineOutput(BaseOutput):
    """What a call made.

    images: pictures in the asked type (list of PIL; numpy (B, H, W, 3); torch (B, 3, H, W); list of code grids).
    texts: answers. seeds: the (seed, index) of each sample. forwards: network passes (NFE) each sample took.
    interrupted: True when the call was stopped; pictures then show what was there, open cells in grey.
    """

    images: Any = None
    texts: list[str] | None = None
    seeds: list[tuple[int, int]] | None = None
    forwards: int = 0
    interrupted: bool = False


class DiMOOPipeline(DiffusionPipeline):
    """Draw, edit, fill and answer with one model.

    Args:
        model: the denoiser. tokenizer: a transformers tokenizer. vqvae: a diffusers VQModel, None for text alone.
        defaults: sampling defaults, see `Defaults`.
    """

    model_cpu_offload_seq = "model->vqvae"
    _optional_components = ["vqvae"]
    _callback_tensor_inputs = list(CALLBACK_TENSORS)

    def __init__(
        self, model: LLaDAForMultiModalGeneration, tokenizer, vqvae: VQModel | None = None, defaults: dict | None = None
    ):
        super().__init__()
        self.register_modules(model=model, tokenizer=tokenizer, vqvae=vqvae)
        self.defaults = Defaults.read(defaults or {})
        images = None if vqvae is None else VQImageTokenizer(vqvae)
        vocab = Vocab.from_checkpoint(tokenizer, model.config, images and images.codebook_size)
        self.codec = Codec(TextTokenizer(tokenizer, vocab), images, self.defaults.image_side)
        self._interrupt = False

    # Loading and saving: the hosted layout keeps the model and tokenizer at the root, the VQ model in vqvae/.

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path, *, dtype=None, torch_dtype=None, device_map=None, revision=None,
        token=None, cache_dir=None, local_files_only=False, quantization_config=None,
    ) -> DiMOOPipeline:  # fmt: skip
        """Load "dimoo-tiny" (embedded), a folder, or a hub id in the hosted layout.

        `dtype` (or `torch_dtype`) is the model's; the VQ model stays in float32. `device_map` and
        `quantization_config` go to transformers. Raises CheckpointError for anything incomplete.
        """
        folder = locate(
            pretrained_model_name_or_path, revision=revision, token=token, cache_dir=cache_dir,
            local_files_only=local_files_only,
        )  # fmt: skip
        placement = {"device_map": device_map, "quantization_config": quantization_config}
        placement = {key: value for key, value in placement.items() if value is not None}
        wanted = dtype or torch_dtype or torch.float32
        model = LLaDAForMultiModalGeneration.from_pretrained(folder, dtype=wanted, **placement).eval()
        with naming(folder, "tokenizer"):
            tokenizer = AutoTokenizer.from_pretrained(folder)
        vqvae = None
        if (folder / "vqvae").is_dir() or not is_text_only(tokenizer):
            with naming(folder / "vqvae", "image tokenizer"):
                vqvae = VQModel.from_pretrained(folder, subfolder="vqvae").float().eval()
        pipeline = cls(model, tokenizer, vqvae)
        pipeline.set_defaults(read_defaults(folder))
        return pipeline

    def set_defaults(self, defaults: Defaults) -> None:
        self.defaults = defaults
        self.codec = Codec(self.codec.text, self.codec.images, defaults.image_side)

    def save_pretrained(self, save_directory, **kwargs) -> None:
        """Write the hosted layout. `kwargs` go to the model's own `save_pretrained` (for example max_shard_size)."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save_pretrained(folder, **kwargs)
        self.tokenizer.save_pretrained(folder)
        if self.vqvae is not None:
            self.vqvae.save_pretrained(folder / "vqvae")
        forget_places(folder)
        write_index(folder, self.defaults, __version__)

    # What users call.

    def generate(
        self, prompt, *, height: int | None = None, width: int | None = None, **options
    ) -> DiMOOPipelineOutput:
        """Draw one prompt or a list of them at height x width pixels. `options`: see `run` and `Settings`."""
        size = {"height": _or(height, self.defaults.height), "width": _or(width, self.defaults.width)}
        return self.run([TextToImage(text, **size) for text in _listed(prompt)], **options)

    def edit(self, prompt, image, *, edit: str = "edit_other", **options) -> DiMOOPipelineOutput:
        """Change `image` (or two: content, style) as `prompt` says; the result has the size of the first."""
        pictures = [load_image(source) for source in _listed(image)]
        return self.run([Edit(text, pictures, edit) for text in _listed(prompt)], **options)

    def inpaint(self, prompt, image, mask_image, *, preserve: bool = True, **options) -> DiMOOPipelineOutput:
        """Fill the white part of `mask_image`; with `preserve` the rest of the picture stays, pixel by pixel."""
        picture = load_image(image)
        mask = load_mask(mask_image, size=picture.size)
        return self.run([Inpaint(text, picture, mask, preserve) for text in _listed(prompt)], **options)

    def outpaint(self, prompt, image, room: tuple[int, int, int, int], **options) -> DiMOOPipelineOutput:
        """Fill `room` = (left, top, right, bottom) pixels around `image`."""
        return self.inpaint(prompt, *expand(load_image(image), *room), **options)

    def ask(
        self, question, image=None, *, history: Sequence[tuple[str, str]] = (), length: int | None = None, **options
    ) -> DiMOOPipelineOutput:
        """Answer a question (or several) about no, one or several pictures, after earlier (question, answer) turns."""
        pictures = [] if image is None else [load_image(source) for source in _listed(image)]
        length = _or(length, self.defaults.text_length)
        return self.run([Ask(text, pictures, history, length) for text in _listed(question)], **options)

    def write(
        self, prompt, *, history: Sequence[tuple[str, str]] = (), length: int | None = None, **options
    ) -> DiMOOPipelineOutput:
        """Answer one prompt or several in words, through the checkpoint's chat template if it has one."""
        length = _or(length, self.defaults.text_length)
        return self.run([Text(text, length, history) for text in _listed(prompt)], **options)

    def infill(
        self, parts: Sequence[str | int], *, prompt: str = Infill.prompt,
        history: Sequence[tuple[str, str]] = (), **options,
    ) -> DiMOOPipelineOutput:  # fmt: skip
        """Fill the holes of one passage: words, and numbers of masks, such as ["the ", 2, " circle"]."""
        return self.run([Infill(parts, prompt, history)], **options)

    def rewrite(
        self, text, *, prompt: str = Rewrite.prompt, keep: Sequence = (), reopen: Sequence = (),
        history: Sequence[tuple[str, str]] = (), **options,
    ) -> DiMOOPipelineOutput:  # fmt: skip
        """Change one passage or several in place: `keep` is locked, `reopen` decided anew, see `Rewrite`."""
        return self.run([Rewrite(each, prompt, keep, reopen, history) for each in _listed(text)], **options)

    def __call__(self, prompt=None, *, task: str | None = None, image=None, mask_image=None, **options):
        """Any task by name; without `task` it follows from what is given (a mask: inpaint, an image: edit)."""
        task = task or ("inpaint" if mask_image is not None else "edit" if image is not None else "generate")
        if task not in TASKS:
            raise ValueError(f"unknown task {task!r}; allowed: {', '.join(TASKS)}")
        given = {"image": image, "mask_image": mask_image}
        given = {name: value for name, value in given.items() if value is not None}
        return getattr(self, task)(prompt, **given, **options)

    def run(
        self,
        tasks: Sequence[Task],
        *,
        num_images_per_prompt: int = 1,
        seed: int | Sequence[Start] | None = None,
        index: int = 0,
        generator: torch.Generator | list[torch.Generator] | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: Callable | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("ids",),
        **settings,
    ):
        """Answer requests of one kind as one batch.

        Args:
            seed: sample k of the batch has the random stream (seed, index + k), so each can be made alone; or a list
                of one (seed, index) for each.
            generator: diffusers style: one generator gives the seed, a list gives one for each sample.
            output_type: `pil`, `np`, `pt` or `tokens` (code grids of pictures, ids of texts).
            callback_on_step_end: called as (pipeline, step, step of the window, tensors) after each step; returned
                `ids` replace those that may be written. `pipeline.interrupt = True` stops within one step.
            settings: fields of `Settings`; an unknown one is a TypeError naming it.

        Raises:
            ValueError: a value that cannot be; nothing has been computed then.
        """
        if output_type not in OUTPUT_TYPES:
            raise ValueError(f"unknown output_type {output_type!r}; allowed: {', '.join(OUTPUT_TYPES)}")
        unknown = [name for name in callback_on_step_end_tensor_inputs if name not in CALLBACK_TENSORS]
        if unknown:
            raise ValueError(f"unknown callback tensor(s) {unknown}; allowed: {', '.join(CALLBACK_TENSORS)}")
        if not tasks:
            raise ValueError("nothing is asked for: give at least one prompt")
        _refuse_unknown(settings, tasks[0])
        if num_images_per_prompt < 1:
            raise ValueError(f"num_images_per_prompt must be at least 1, got {num_images_per_prompt}")
        tasks = [task for task in tasks for _ in range(num_images_per_prompt)]
        seeds = seeds_for(len(tasks), seed, index, generator)
        kind = tasks[0].kind
        if any(task.kind != kind for task in tasks):
            raise ValueError("one call makes drawings, edits or answers, not a mixture")
        chosen = Settings(**settings).filled(self.defaults, kind)
        if chosen.best_of and not all(isinstance(task, TextToImage) for task in tasks):
            raise ValueError("best_of is for drawings from words: the model has no checks for edits and answers")
        canvas, forwards = self._denoise(tasks, seeds, chosen, callback_on_step_end, callback_on_step_end_tensor_inputs)
        made = self._finish(tasks, canvas, output_type)
        self.maybe_free_model_hooks()
        field = "texts" if kind == "text" else "images"
        output = DiMOOPipelineOutput(seeds=seeds, forwards=forwards, interrupted=self._interrupt, **{field: made})
        return output if return_dict else (made,)

    @property
    def interrupt(self) -> bool:
        return self._interrupt

    @interrupt.setter
    def interrupt(self, value: bool) -> None:
        self._interrupt = value

    # Inside.

    def _denoise(self, tasks, seeds, settings: Settings, callback, tensors) -> tuple[Canvas, int]:
        kind = tasks[0].kind
        parts = settings.slots(kind)
        refuse(cache=parts["cache"], attention=self.model.attention_kind)
        for length in {task.length for task in tasks if isinstance(task, Text | Ask)}:
            settings.check_length(length)
        prepared = {id(task): task.prepare(self.codec) for task in {id(task): task for task in tasks}.values()}
        rows = [prepared[id(task)] for task in tasks]
        canvas = Canvas(rows, self.codec.vocab, seeds, self._execution_device)
        searcher = settings.searcher()
        self._interrupt = False
        with self.progress_bar(total=settings.num_inference_steps) as bar:

            def on_step(step: Step) -> bool:
                bar.update()
                if callback is not None:
                    ids, lengths = step.canvas.ids.clone(), torch.tensor(step.canvas.lengths)
                    given = {**vars(step.update), "ids": ids, "lengths": lengths}
                    answer = callback(self, step.tick, step.number, {name: given[name] for name in tensors}) or {}
                    if "ids" in answer:
                        step.canvas.replace(_fitting(answer["ids"], step.canvas.ids))
                return self._interrupt

            if searcher:
                prompts, steps = [task.prompt for task in tasks], settings.num_inference_steps
                method, checks = searcher
                tries = Tries(self.model, self.codec, rows, prompts, seeds, parts, steps, checks, on_step)
                return search(method, tries, settings.best_of)
            return canvas, denoise(canvas, self.model, **parts, on_step=on_step)

    def _finish(self, tasks: Sequence[Task], canvas: Canvas, output_type: str):
        answers = [canvas.row(k) for k in range(len(tasks))]
        if tasks[0].kind == "text":
            texts = (task.finish(self.codec, answer) for task, answer in zip(tasks, answers, strict=True))
            return answers if output_type == "tokens" else list(texts)
        if output_type == "tokens":
            vocab, grids = self.codec.vocab, zip(answers, canvas.grids, strict=True)
            return [vocab.cells(answer[1:-1], *grid) - vocab.image_offset for answer, grid in grids]
        unfinished = canvas.masked.any(1).tolist()
        if any(unfinished):                                                     # interrupted: grey where it is open
            ways = [task.preview if open_ else task.finish for task, open_ in zip(tasks, unfinished, strict=True)]
            pictures = [way(self.codec, answer) for way, answer in zip(ways, answers, strict=True)]
        else:
            grids = [task.codes(self.codec, answer) for task, answer in zip(tasks, answers, strict=True)]
            pictures = [task.complete(self.codec.draw(grid)) for task, grid in zip(tasks, grids, strict=True)]
        return _as_type(pictures, output_type)


def _refuse_unknown(options: Iterable[str], task: Task) -> None:
    """TypeError for the first option that neither `run`, the task's own method nor `Settings` has."""
    method = next((name for name, kind in TASKS.items() if type(task) is kind), "run")
    known = {field.name for field in fields(Settings)}
    for function in (DiMOOPipeline.run, getattr(DiMOOPipeline, method)):
        given = inspect.signature(function).parameters.values()
        known |= {parameter.name for parameter in given if parameter.kind is parameter.KEYWORD_ONLY}
    for name in options:
        if name not in known:
            raise TypeError(f"{method} has no option {name!r}{choices(name, known)}")


def _fitting(ids: torch.Tensor, canvas_ids: torch.Tensor) -> torch.Tensor:
    """The ids a callback returned, once they can be a canvas."""
    if ids.shape != canvas_ids.shape or ids.dtype != canvas_ids.dtype:
        wanted, got = ((tuple(t.shape), t.dtype) for t in (canvas_ids, ids))
        raise ValueError(f"a callback must return ids of shape and dtype {wanted}, got {got}")
    return ids.to(canvas_ids.device)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _listed(value) -> list:
    return list(value) if isinstance(value, list | tuple) else [value]


def _as_type(pictures: list[Image.Image], output_type: str):
    """PIL pictures as asked; arrays are stacked when all sizes agree, else stay a list."""
    if output_type == "pil":
        return pictures
    arrays: list = [to_pixels(picture) for picture in pictures]
    if output_type == "np":
        arrays = [array.permute(1, 2, 0).numpy() for array in arrays]
    if len({array.shape for array in arrays}) > 1:
        return arrays
    return torch.stack(arrays) if output_type == "pt" else np.stack(arrays)
