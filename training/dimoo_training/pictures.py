"""A book of scenes with their image codes, encoded once: the training pictures of one run."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dimoo_training import world as w
from tokenizers_vq import ImageTokenizer


@dataclass
class PictureBook:
    """Records of scenes: captioned pictures, edits, and every scene again for questions.

    `codes[i]` are the (8, 8) int16 codes of `scenes[i]`; `captions` and `edits` refer to scenes by index.
    """

    scenes: list[w.Scene] = field(default_factory=list)
    captions: list[tuple[str, int]] = field(default_factory=list)
    edits: list[tuple[str, int, int]] = field(default_factory=list)
    codes: np.ndarray | None = None
    made_of: tuple = ()
    """What the book was made of, so that another run does not take it for its own."""

    def add(self, scene: w.Scene) -> int:
        self.scenes.append(scene)
        return len(self.scenes) - 1

    def save(self, path: Path) -> None:
        aside = path.with_suffix(".part")
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(pickle.dumps(self))
        aside.replace(path)


CAPTION_MIX = {
    "single": 1.5, "two": 2.0, "counting": 1.0, "colors": 2.0, "position": 1.5, "attributes": 1.5, "full": 1.0,
}  # fmt: skip
EDIT_MIX = {"recolor": 2.0, "remove": 2.0, "reshape": 1.0, "add": 1.0, "move": 0.7, "background": 1.0, "swap": 0.5}


def draw_from(mix: dict[str, float], rng: np.random.Generator) -> str:
    """A key of `mix`, with probability proportional to its value."""
    shares = np.cumsum(list(mix.values()))
    return list(mix)[int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))]


def make_book(
    world: w.World, captions: int, edits: int, tokenizer: ImageTokenizer, rng: np.random.Generator
) -> PictureBook:
    """Draw training facts (never held-out ones), render and encode them."""
    book = PictureBook()
    for _ in range(captions):
        caption = w.train_caption(world, draw_from(CAPTION_MIX, rng), rng)
        book.captions.append((caption.text, book.add(w.scene_for(caption.claim, world, rng))))
    for _ in range(edits):
        edit = w.train_edit(world, rng, (draw_from(EDIT_MIX, rng),))
        book.edits.append((edit.text, book.add(edit.source), book.add(edit.target)))
    book.codes = encode_scenes(tokenizer, book.scenes).numpy().astype(np.int16)
    return book


def pixels_of(scenes: Sequence[w.Scene]) -> Tensor:
    """Renders (B, 3, 64, 64) in [0, 1]."""
    return torch.from_numpy(w.render_batch(list(scenes))).permute(0, 3, 1, 2).float() / 255


def encode_scenes(tokenizer: ImageTokenizer, scenes: Sequence[w.Scene], batch: int = 64) -> Tensor:
    """Codes (n, h, w) of rendered scenes."""
    chunks = [tokenizer.encode(pixels_of(scenes[i : i + batch])) for i in range(0, len(scenes), batch)]
    return torch.cat(chunks)


def object_codes(scene: w.Scene, side: int = 8) -> np.ndarray:
    """(side, side) bool: codes that show a part of an object."""
    cell = side // 4
    shown = np.zeros((side, side), dtype=bool)
    for thing in scene.objects:
        row, column = thing.cell
        shown[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell] = True
    return shown
