"""One evaluation of one pipeline: it is asked in batches, and its pictures are kept for the contact sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from PIL import Image

from dimoo import DiMOOPipeline
from dimoo.tasks import Ask
from dimoo_training import world as w
from dimoo_training.picture_tasks import Picture, paint
from dimoo_training.world.scene import SIDE_PX

BATCH = 16


def chunks(items: Sequence[Any], size: int = BATCH) -> Iterator[list[Any]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk


def plain(image: Image.Image) -> np.ndarray:
    """uint8 (64, 64, 3), as oracle and map reader want it; larger pictures are averaged."""
    return np.asarray(image.reduce(image.width // SIDE_PX))


def read(image: Image.Image) -> w.Scene | None:
    """What the oracle sees, None where a cell is malformed."""
    return w.parse(plain(image)).scene


@dataclass
class Sitting:
    """`pictures` and `answers` run tasks with the pipeline's own defaults but for `settings` and the given ones."""

    pipeline: DiMOOPipeline
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    """For pictures: steps, guidance, temperature ..."""
    preset: str = "exact"
    """For everything."""
    sheet: list[tuple[str, Image.Image, bool]] = field(default_factory=list)
    """Caption, picture and whether it is right."""
    drawn: list[Image.Image] = field(default_factory=list)
    """The model's own drawings of the text-to-image part."""

    def __post_init__(self):
        if self.side % SIDE_PX:
            raise ValueError(f"the model draws {self.side} pixels a side, the world has {SIDE_PX} or a multiple")

    @property
    def side(self) -> int:
        """Pixels a side of the checkpoint's pictures."""
        return self.pipeline.defaults.height

    def picture(self, shown: Picture) -> Image.Image:
        """A scene or map as a user would hand it over."""
        return Image.fromarray(paint(shown, self.side // SIDE_PX))

    def pictures(self, tasks: Sequence[Any]) -> list[Image.Image]:
        """One picture a task; noise is numbered by the task's place, whatever the batch."""
        made = []
        for number, chunk in enumerate(chunks(tasks)):
            given = {"seed": self.seed, "index": BATCH * number, "preset": self.preset, **self.settings}
            made += self.pipeline.run(chunk, **given).images
        return made

    def answers(self, tasks: Sequence[Ask], **settings) -> list[str]:
        said = []
        for number, chunk in enumerate(chunks(tasks)):
            given = {"seed": self.seed, "index": BATCH * number, "preset": self.preset, **settings}
            given.setdefault("block_length", chunk[0].length)                   # whatever the checkpoint's blocks
            said += self.pipeline.run(chunk, **given).texts
        return said

    def show(self, captions: Sequence[str], images: Sequence[Image.Image], right: Sequence[float]) -> None:
        self.sheet += [(c, image, r == 1) for c, image, r in zip(captions, images, right, strict=True)]
