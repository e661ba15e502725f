"""Supervised training, top to bottom: examples -> loss -> update -> checkpoint.

The loss is masked cross-entropy as in Lumina-DiMOO (exact-count cosine masking, no 1/t), with two changes: tokens of
objects, and in edits the tokens that change, weigh more than background; and each kind of example is normalised by its
own weight and then counts as the recipe says. For a while a recipe may drill one kind of question alone. A run killed
at any moment continues from its last state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from dimoo.model.llada import LLaDAForMultiModalGeneration
from dimoo.text import TextTokenizer
from dimoo_training.checkpoint import assemble, codebook_of, new_vocab
from dimoo_training.examples import ExampleMaker
from dimoo_training.notes import Notes
from dimoo_training.optimiser import warmup_then_decay
from dimoo_training.pictures import open_book
from dimoo_training.placement import Placement, replicated
from dimoo_training.recipes import Course, SFTRecipe
from dimoo_training.words import build_tokenizer
from dimoo_training.workers import Ahead

Batch = dict[str, Tensor]


class Source(Protocol):
    """Where batches come from."""

    def batches(self, step: int, rng: np.random.Generator) -> Iterator[tuple[str, Batch]]:
        """(kind, batch) of one optimiser step; random choices follow from `rng`, or from the step and a seed."""
        ...


class NotFinite(ArithmeticError):
    """A loss is NaN or infinite: the run stopped before the update, its last state is whole."""


def fit(
    model: LLaDAForMultiModalGeneration, source: Source, recipe: Course, out: Path,
    export: Callable[[dict[str, Tensor]], None], log: Callable[[str], None] = print, place: Placement = replicated,
) -> None:  # fmt: skip
    """Train to `recipe.steps` (or only `until`), continuing from the state in `out` when there is one.

    Saves the state every few minutes and calls `export` with the (averaged) weights, in the main process; losses by
    kind and mask ratio go to out/log.jsonl and out/tensorboard. Works in one process or under `accelerate launch`.
    """
    accelerator = Accelerator(
        mixed_precision=recipe.precision, cpu=not torch.cuda.is_available(),
        gradient_accumulation_steps=recipe.accumulate,
    )  # fmt: skip
    objective, run = place(model, recipe, accelerator)
    run.restore(out)

    def keep() -> None:
        run.save(out)
        weights = run.weights()
        if weights is not None:
            export(weights)

    main, end = accelerator.is_main_process, min(recipe.until or recipe.steps, recipe.steps)
    notes = Notes(out, run.step, end, recipe.log_every, log) if main else None
    clock = Clock(recipe.save_every_seconds, accelerator)
    while run.step < end:
        for kind, batch in source.batches(run.step, run.rng):
            loss, each = objective({name: value.to(accelerator.device) for name, value in batch.items()})
            if not torch.isfinite(loss):
                ids = batch["labels"].tolist()
                raise NotFinite(f"step {run.step}, {kind}: loss {loss.item()}; ids of the batch: {ids}")
            if main:
                notes.hear(kind, each.cpu(), batch["ratio"])                    # before there is more to wait for
            accelerator.backward(recipe.emphasis.get(kind, 1.0) * loss)
        norm = run.update(warmup_then_decay(run.step / recipe.steps, decay=recipe.decay))
        if main:
            notes.turn(run.step, grad_norm=norm)
        if clock.rings():
            keep()
    keep()
    if main:
        notes.close()


class Clock:
    """Rings every so many seconds, in all processes at the same step: saving takes all of them."""

    def __init__(self, seconds: float, accelerator: Accelerator):
        self.seconds, self.accelerator, self.last = seconds, accelerator, time.time()

    def rings(self) -> bool:
        due = time.time() - self.last > self.seconds
        if self.accelerator.num_processes > 1:
            due = bool(self.accelerator.reduce(torch.tensor(float(due), device=self.accelerator.device)) > 0)
        if due:
            self.last = time.time()
        return due


class WorldSource:
    """Examples of the small world, mixed as the recipe says."""

    def __init__(self, maker: ExampleMaker, recipe: SFTRecipe):
        self.maker, self.recipe = maker, recipe

    def batches(self, step: int, rng: np.random.Generator) -> Iterator[tuple[str, Batch]]:
        shares = self.recipe.shares(step / self.recipe.steps)
        for kind, (count, length) in self.recipe.batches(step).items():
            yield kind, self.maker.batch(kind, count, length, rng, shares)


def train(recipe: SFTRecipe, vq_folder: Path, out: Path, log=print) -> LLaDAForMultiModalGeneration:
    """Train a model of the small world; out/checkpoint can be loaded all along. Needs no diffusers where the pictures
    are in `out` already, see `open_book`."""
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    tokenizer = build_tokenizer()
    vocab = new_vocab(tokenizer, len(codebook_of(vq_folder)))
    books = {name: open_book(out / f"pictures-{name}.pkl", name, recipe, vq_folder) for name in recipe.books}
    source = WorldSource(ExampleMaker(TextTokenizer(tokenizer, vocab), vocab, books), recipe)
    if recipe.workers:
        source = Ahead(source, recipe.seed, recipe.workers)
    model = LLaDAForMultiModalGeneration(recipe.model_config(vocab, tokenizer))
    log(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters, "
        f"{sum(len(book.pictures) for book in books.values())} pictures")

    def export(weights: dict[str, Tensor]) -> None:
        assemble(model.config, weights, tokenizer, vq_folder, out / "checkpoint", recipe.scale)

    fit(model, source, recipe, out, export, log)
    return model
