"""What is measured: a model, requests as rows of a canvas, and the slots of each preset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dimoo.bench.plain import PlainPath
from dimoo.canvas import Canvas, Row
from dimoo.model import LLaDAConfig, LLaDAForMultiModalGeneration
from dimoo.resolve import choices
from dimoo.settings import Defaults, Settings
from dimoo.vocab import TOKEN_STRINGS, Vocab

TASKS = {"generate": "draw", "edit": "edit", "ask": "text"}
"""Task -> the kind of settings it takes."""
BASELINE = "plain"


def shape(width: int, layers: int, vocabulary: int) -> LLaDAConfig:
    """A model of the hosted one's shape: heads of 128, an MLP of three times the width, 1/16 of the ids codes."""
    sizes = {"d_model": width, "n_heads": width // 128, "n_layers": layers, "mlp_hidden_size": 3 * width}
    return LLaDAConfig(**sizes, vocab_size=vocabulary, mask_token_id=1, codebook_size=vocabulary // 16)


SIZES: dict[str, Callable[[], LLaDAConfig]] = {
    "1m": lambda: shape(128, 4, 512),
    "100m": lambda: shape(768, 12, 8192),
    "8b": lambda: LLaDAConfig(codebook_size=8192),
}
"""Name -> config of random weights. In all of them the output head takes about 6% of a pass."""


def random_model(size: str, device: torch.device, dtype: torch.dtype) -> LLaDAForMultiModalGeneration:
    """Random weights, made where they are used."""
    if size not in SIZES:
        raise ValueError(f"unknown random size {size!r}{choices(size, SIZES)}")
    with torch.device("meta"):
        model = LLaDAForMultiModalGeneration(SIZES[size]()).to(dtype)
    model = model.to_empty(device=device).eval()
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.fill_(1.0)
            else:
                weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
    return model


def random_vocab(config: LLaDAConfig) -> Vocab:
    """Ids as in the hosted checkpoint: special ones, then the codes at the end."""
    ids = {role: 2 + k for k, role in enumerate(role for role in TOKEN_STRINGS if role != "mask")}
    offset = config.vocab_size - config.codebook_size
    return Vocab(mask=config.mask_token_id, **ids, image_offset=offset, codebook_size=config.codebook_size,
                 size=config.vocab_size)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """What is asked: a task on a grid of codes (0, 0: no picture), in so many steps, several at once."""

    task: str = "generate"
    grid: tuple[int, int] = (32, 32)
    steps: int = 64
    batch: int = 1
    answer: int = 128
    """Masks of an answer in words."""

    def __post_init__(self):
        if self.task not in TASKS:
            raise ValueError(f"unknown task {self.task!r}{choices(self.task, TASKS)}")
        for name in ("steps", "batch", "answer"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


WORDS = {"generate": 100, "edit": 40, "ask": 40}
"""Tokens of a prompt, with the system prompt; an empty one has 16."""


def random_row(load: Load, vocab: Vocab, seed: int) -> Row:
    """A request of random ids of the usual lengths."""
    generator = torch.Generator().manual_seed(seed)

    def words(count: int) -> Tensor:
        return torch.randint(len(TOKEN_STRINGS) + 2, vocab.image_offset // 2, (count,), generator=generator)

    full, empty = words(WORDS[load.task] + seed), words(16)
    codes = torch.randint(vocab.codebook_size, load.grid, generator=generator)
    source = vocab.lay_out(codes) if load.task != "generate" and codes.numel() else words(0)
    with_source = torch.cat([full, source])
    conditions = {"cond": with_source, "no_text": torch.cat([empty, source]), "no_image": full, "uncond": empty}
    ends = torch.tensor([vocab.boa]), torch.tensor([vocab.eoa])
    if load.task == "ask":
        answer = torch.cat([ends[0], torch.full((load.answer,), vocab.mask), ends[1]])
        return Row(answer, conditions, vocab.everything)
    answer = torch.cat([ends[0], vocab.empty_image(*load.grid), ends[1]])
    return Row(answer, conditions, vocab.codes, load.grid)


@dataclass
class Workload:
    """A model and the rows it fills."""

    name: str
    model: Any
    vocab: Vocab
    rows: list[Row]
    load: Load
    defaults: Defaults = Defaults()  # noqa: RUF009  (frozen)
    pipeline: Any = None
    """Where the model has one: what draws for the oracle."""

    @classmethod
    def random(cls, size: str, load: Load, device: torch.device, dtype: torch.dtype, model=None) -> Workload:
        """Random weights of a size; `model` is one made before."""
        model = model or random_model(size, device, dtype)
        vocab = random_vocab(model.config)
        return cls(f"random-{size}", model, vocab, [random_row(load, vocab, k) for k in range(load.batch)], load)

    @classmethod
    def of(cls, name: str, pipeline, load: Load) -> Workload:
        """A loaded checkpoint, asked what it understands."""
        from dimoo.tasks import Ask, Edit, TextToImage

        codec = pipeline.codec
        height, width = (side * codec.images.ratio for side in load.grid)
        codes = torch.randint(codec.vocab.codebook_size, load.grid, generator=torch.Generator().manual_seed(0))
        make = {
            "generate": lambda text: TextToImage(text, height, width),
            "edit": lambda text: Edit(f"add {text}", [codec.draw(codes)]),
            "ask": lambda text: Ask(f"is there {text}?", [codec.draw(codes)], length=pipeline.defaults.text_length),
        }[load.task]
        texts = [f"a {color} {noun}" for noun in ("circle", "square", "star") for color in ("red", "blue", "green")]
        rows = [make(texts[k % len(texts)]).prepare(codec) for k in range(load.batch)]
        return cls(name, pipeline.model, codec.vocab, rows, load, pipeline.defaults, pipeline)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def key(self) -> str:
        """What tells it from other workloads."""
        return f"{self.name} {self.load} {self.model.dtype} {self.device}"

    def canvas(self) -> Canvas:
        return Canvas(self.rows, self.vocab, [(0, k) for k in range(len(self.rows))], self.device)

    def slots(self, preset: str, steps: int) -> dict[str, Any]:
        """The arguments of `denoise` for a preset, or for `plain`. Raises ValueError for one that does not exist."""
        kind, plain = TASKS[self.load.task], preset == BASELINE
        settings = Settings(num_inference_steps=steps, preset="exact" if plain else preset).filled(self.defaults, kind)
        return settings.slots(kind) | ({"cache": PlainPath()} if plain else {})
