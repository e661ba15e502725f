"""A book of picture tasks with their image codes, encoded once: the training pictures of one run."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dimoo_training import world as w
from dimoo_training.picture_tasks import PICTURE_TASKS, Map, Picture, PictureTask, paint
from tokenizers_vq import ImageTokenizer


@dataclass(frozen=True, slots=True)
class Record:
    """A picture task whose pictures are pages of a book."""

    system: str
    text: str
    sources: tuple[int, ...]
    target: int


class PictureBook:
    """`records[kind]` are tasks; `codes[i]` (h, w) int16 are the image codes of `pictures[i]`."""

    def __init__(self, world: w.World):
        self.world = world
        self.pictures: list[Picture] = []
        self.records: dict[str, list[Record]] = {}
        self.codes = np.zeros((0, 0, 0), dtype=np.int16)
        self.made_of: tuple = ()
        """What the book was made of, so that another run does not take it for its own."""

    def add(self, picture: Picture) -> int:
        self.pictures.append(picture)
        return len(self.pictures) - 1

    def write(self, kind: str, task: PictureTask) -> None:
        system, text = task.prompt
        record = Record(system, text, tuple(self.add(source) for source in task.sources), self.add(task.target))
        self.records.setdefault(kind, []).append(record)

    def scenes(self) -> list[int]:
        """Pages that may be asked about: no maps, and nothing held out (training captions and edits lead there)."""
        shown = ((i, picture) for i, picture in enumerate(self.pictures) if not isinstance(picture, Map))
        return [i for i, scene in shown if not w.held_out(scene.key())]

    def save(self, path: Path) -> None:
        """Write aside, then rename."""
        aside = path.with_suffix(".part")
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(pickle.dumps(self))
        aside.replace(path)


def make_book(
    world: w.World, sizes: Mapping[str, int], tokenizer: ImageTokenizer, rng: np.random.Generator
) -> PictureBook:
    """`sizes[kind]` tasks of every kind from training facts (never held-out ones), rendered and encoded."""
    book = PictureBook(world)
    for kind, count in sizes.items():
        for _ in range(count):
            book.write(kind, PICTURE_TASKS[kind](world, rng))
    book.codes = encode(tokenizer, book.pictures).numpy().astype(np.int16)
    return book


def pixels_of(pictures: Sequence[Picture]) -> Tensor:
    """Renders (B, 3, 64, 64) in [0, 1]."""
    return torch.from_numpy(np.stack([paint(p) for p in pictures])).permute(0, 3, 1, 2).float() / 255


def encode(tokenizer: ImageTokenizer, pictures: Sequence[Picture], batch: int = 64) -> Tensor:
    """Codes (n, h, w) of pictures."""
    return torch.cat([tokenizer.encode(pixels_of(pictures[i : i + batch])) for i in range(0, len(pictures), batch)])


def object_codes(picture: Picture, side: int = 8) -> np.ndarray:
    """(side, side) bool: codes that show a part of an object."""
    scene = picture.scene if isinstance(picture, Map) else picture
    cell = side // w.GRID
    shown = np.zeros((side, side), dtype=bool)
    for thing in scene.objects:
        row, column = thing.cell
        shown[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell] = True
    return shown

