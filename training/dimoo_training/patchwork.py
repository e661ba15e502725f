"""Training pictures of the image tokenizer, in pairs of twins that share some of their patches.

A third of them are patchworks: every patch is a quarter of another object. No neighbour then tells what a patch shows,
so each code has to, and a model can read or draw an object quarter by quarter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from dimoo_training.world import RGB, World
from dimoo_training.world.maps import KINDS, LEVELS, stamp
from dimoo_training.world.render import backdrop, enlarge, sprite
from dimoo_training.world.scene import CELL_PX, GRID, pick

SIDE, PX = 2 * GRID, CELL_PX // 2
"""Patches a side, and their pixels at scale 1."""
MAPS, PATCHWORKS = 0.2, 0.4
"""Share of pictures that are maps, and that are patchworks."""
FILLED, KEPT, SAME_BACKGROUND = (0.1, 0.8), 0.6, 0.5
"""Least and most of the cells or patches that are filled, the share of those a twin keeps, and of twins on the same
background. The world itself has at most four of sixteen cells filled: the rest would teach nothing here."""

Look = tuple  # ("object", shape, color, size) or (kind of map, shape, size, level)
assert not set(KINDS) & set(RGB)


def _look(world: World, mapped: str | None, rng: np.random.Generator) -> Look:
    shape, size = pick(world.shapes, rng), pick(world.sizes, rng)
    if mapped is None:
        return "object", shape, pick(world.colors, rng), size
    return mapped, shape, size, int(rng.integers(len(LEVELS))) if mapped == "depth" else 0


@cache
def _patches(look: Look, background: str, scale: int = 1) -> np.ndarray:
    """The quarters of a cell, uint8 (2, 2, 8 scale, 8 scale, 3)."""
    kind, *rest = look
    cell = sprite(*rest, background, scale) if kind == "object" else enlarge(stamp(kind, *rest), scale)
    return cell.reshape(2, PX * scale, 2, PX * scale, 3).swapaxes(1, 2)


def _fill(draw: Callable[[], Look], patchwork: bool, rng: np.random.Generator) -> np.ndarray:
    """(8, 8) looks, None where empty: whole objects, or for a patchwork another one in each patch."""
    side = SIDE if patchwork else GRID
    looks = np.full((side, side), None, dtype=object)
    for at in np.argwhere(rng.random((side, side)) < rng.uniform(*FILLED)):
        looks[tuple(at)] = draw()
    return looks if patchwork else looks.repeat(2, 0).repeat(2, 1)


def _paint(looks: np.ndarray, background: str, scale: int) -> np.ndarray:
    """uint8 (64 scale, 64 scale, 3)."""
    picture, px = np.tile(backdrop(background, scale), (GRID, GRID, 1)), PX * scale
    for row, column in np.argwhere(looks != None):  # noqa: E711 - elementwise
        quarter = _patches(looks[row, column], background, scale)[row % 2, column % 2]
        picture[row * px : (row + 1) * px, column * px : (column + 1) * px] = quarter
    return picture


@cache
def _meaning(look: Look, row: int, column: int) -> int:
    """A number for what a patch shows, the same for looks with the same pixels; 0 is kept for nothing."""
    return 1 + crc32(_patches(look, "black")[row, column].tobytes())


def _meanings(looks: np.ndarray) -> np.ndarray:
    """(8, 8) int64."""
    found = np.zeros(looks.shape, dtype=np.int64)
    for row, column in np.argwhere(looks != None):  # noqa: E711 - elementwise
        found[row, column] = _meaning(looks[row, column], row % 2, column % 2)
    return found


Pair = tuple[list[np.ndarray], list[np.ndarray], np.ndarray]


def _pair(world: World, rng: np.random.Generator, scale: int, maps: float) -> Pair:
    """Two pictures, what their patches mean, and which patches they share."""
    mapped = pick(KINDS, rng) if rng.random() < maps else None
    patchwork = bool(rng.random() < PATCHWORKS)
    draw = lambda: _look(world, mapped, rng)  # noqa: E731
    mine, theirs = _fill(draw, patchwork, rng), _fill(draw, patchwork, rng)
    cell = 1 if patchwork else 2
    kept = (rng.random((SIDE // cell, SIDE // cell)) < KEPT).repeat(cell, 0).repeat(cell, 1) & (mine != None)  # noqa: E711
    theirs = np.where(kept, mine, theirs)
    backgrounds = [pick(world.backgrounds, rng) if mapped is None else "black" for _ in range(2)]
    if rng.random() < SAME_BACKGROUND:
        backgrounds[1] = backgrounds[0]
    empty = (mine == None) & (theirs == None) & (backgrounds[0] == backgrounds[1])  # noqa: E711
    pictures = [_paint(looks, ground, scale) for looks, ground in zip((mine, theirs), backgrounds, strict=True)]
    return pictures, [_meanings(mine), _meanings(theirs)], kept | empty


def pairs(
    world: World, count: int, rng: np.random.Generator, scale: int = 1, maps: float = MAPS
) -> tuple[Tensor, Tensor, Tensor]:
    """2*count pictures, k and k+count being twins; `maps` is the share of maps among them.

    Returns pixels (2*count, 3, 64 scale, 64 scale) in [0, 1], the meaning of each patch (2*count, 8, 8), an arbitrary
    number and 0 where nothing is, and which patches are shared (count, 8, 8).
    """
    made = [_pair(world, rng, scale, maps) for _ in range(count)]
    pixels = torch.from_numpy(np.stack([pictures[side] for side in (0, 1) for pictures, _, _ in made]))
    meaning = torch.from_numpy(np.stack([parts[side] for side in (0, 1) for _, parts, _ in made]))
    shared = torch.from_numpy(np.stack([together for _, _, together in made]).astype(bool))
    pixels = (pixels.permute(0, 3, 1, 2).float() / 255).contiguous(memory_format=torch.channels_last)
    return pixels, meaning, shared
