"""A book of picture tasks with their image codes, encoded once: the training pictures of one run."""

from __future__ import annotations

import hashlib
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dimoo_training import world as w
from dimoo_training.checkpoint import codebook_of
from dimoo_training.picture_tasks import PICTURE_TASKS, Map, Picture, PictureTask, paint
from dimoo_training.recipes import SFTRecipe
from tokenizers_vq import ImageTokenizer, VQImageTokenizer


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
        """Write aside, then rename. Compressed, because books travel: most codes are background."""
        aside = path.with_suffix(".part")
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(zlib.compress(pickle.dumps(self)))
        aside.replace(path)

    @staticmethod
    def load(path: Path) -> PictureBook:
        """What `save` wrote; earlier books are not compressed. Only for our own files: a pickle can run code."""
        stored = path.read_bytes()
        return pickle.loads(stored if stored.startswith(pickle.PROTO) else zlib.decompress(stored))


def make_book(
    world: w.World, sizes: Mapping[str, int], tokenizer: ImageTokenizer, rng: np.random.Generator, scale: int = 1
) -> PictureBook:
    """`sizes[kind]` tasks of every kind from training facts (never held-out ones), rendered and encoded."""
    book = PictureBook(world)
    for kind, count in sizes.items():
        for _ in range(count):
            book.write(kind, PICTURE_TASKS[kind](world, rng))
    book.codes = encode(tokenizer, book.pictures, scale).numpy().astype(np.int16)
    return book


def open_book(path: Path, name: str, recipe: SFTRecipe, vq_folder: Path) -> PictureBook:
    """The pictures of one world: from disk when they are there and of this recipe and tokenizer, else made and kept.

    Only the making needs diffusers, so a run on a machine without it takes its books along.
    """

    def tokenizer() -> ImageTokenizer:
        from diffusers import VQModel

        found = VQImageTokenizer(VQModel.from_pretrained(vq_folder).eval())
        if found.ratio * 8 != w.SIDE_PX * recipe.scale:
            raise ValueError(f"{vq_folder} is an image tokenizer of {8 * found.ratio} pixels a side, the recipe's "
                             f"pictures have {w.SIDE_PX * recipe.scale}")
        return found

    return kept_book(path, name, recipe, codebook_of(vq_folder), tokenizer)


def kept_book(
    path: Path, name: str, recipe: SFTRecipe, codebook: Tensor, tokenizer: Callable[[], ImageTokenizer]
) -> PictureBook:
    """The same for a tokenizer that is only built when it is needed; its codebook (K, e) tells it from others."""
    sizes, codes = recipe.books[name], codebook.numpy().tobytes()
    made_of = (name, tuple(sizes.items()), recipe.seed, hashlib.sha256(codes).hexdigest())
    if path.exists() and (book := PictureBook.load(path)).made_of == made_of:
        return book
    rng = np.random.default_rng([recipe.seed, 1, list(recipe.books).index(name)])
    book = make_book(w.WORLDS[name], sizes, tokenizer(), rng, recipe.scale)
    book.made_of = made_of
    book.save(path)
    return book


def pixels_of(pictures: Sequence[Picture], scale: int = 1) -> Tensor:
    """Renders (B, 3, 64 scale, 64 scale) in [0, 1]."""
    return torch.from_numpy(np.stack([paint(p, scale) for p in pictures])).permute(0, 3, 1, 2).float() / 255


def encode(tokenizer: ImageTokenizer, pictures: Sequence[Picture], scale: int = 1, batch: int = 64) -> Tensor:
    """Codes (n, h, w) of pictures."""
    chunks = (pictures[i : i + batch] for i in range(0, len(pictures), batch))
    return torch.cat([tokenizer.encode(pixels_of(chunk, scale)) for chunk in chunks])


def object_codes(picture: Picture, side: int = 8) -> np.ndarray:
    """(side, side) bool: codes that show a part of an object."""
    scene = picture.scene if isinstance(picture, Map) else picture
    cell = side // w.GRID
    shown = np.zeros((side, side), dtype=bool)
    for thing in scene.objects:
        row, column = thing.cell
        shown[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell] = True
    return shown

