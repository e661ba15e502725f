"""Dense maps of a scene as pictures: its edges, its object mask, its depth by order; and their reader."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np

from .render import alpha, backdrop
from .scene import CELL_PX, CELLS, GRID, SHAPES, SIDE_PX, SIZES, Cell, Scene, require

LIGHT = 250
LEVELS = (250, 190, 130, 74)
"""Grey of an object by its place in the depth order: the nearest, last in reading order, is the brightest."""
MISFIT = 0.3
"""Share of a stamp's energy that a cell may leave unexplained."""

Stamp = tuple[str, str, int]  # shape, size, depth level


def _inside(shape: str, size: str) -> np.ndarray:
    return alpha(shape, size) > 0.5


def _outline(shape: str, size: str) -> np.ndarray:
    """Pixels of the shape with a neighbour outside of it."""
    inside = np.pad(_inside(shape, size), 1)
    around = inside[:-2, 1:-1] & inside[2:, 1:-1] & inside[1:-1, :-2] & inside[1:-1, 2:]
    return (inside[1:-1, 1:-1] & ~around).astype(np.float32)


COVER: dict[str, Callable[[str, str], np.ndarray]] = {"edges": _outline, "mask": alpha, "depth": alpha}
KINDS = tuple(COVER)


@cache
def stamp(kind: str, shape: str, size: str, level: int = 0) -> np.ndarray:
    """One cell of a map, uint8 (16, 16, 3) on black; `level` indexes LEVELS and is 0 but for depth."""
    require("kind of map", kind, KINDS)
    under = backdrop("black").astype(np.float32)
    cell = np.rint(under + COVER[kind](shape, size)[..., None] * (LEVELS[level] - under)).astype(np.uint8)
    cell.setflags(write=False)
    return cell


def stamps(scene: Scene, kind: str) -> dict[Cell, Stamp]:
    """What the map of a scene shows, by cell."""
    nearest = len(scene.objects) - 1
    levels = {t.cell: nearest - i if kind == "depth" else 0 for i, t in enumerate(scene.objects)}
    return {t.cell: (t.shape, t.size, levels[t.cell]) for t in scene.objects}


def draw_map(scene: Scene, kind: str) -> np.ndarray:
    """The map of a scene, uint8 (64, 64, 3). ValueError for a kind that is none of KINDS."""
    require("kind of map", kind, KINDS)
    picture = np.tile(backdrop("black"), (GRID, GRID, 1))
    for (row, col), shown in stamps(scene, kind).items():
        picture[row * CELL_PX : (row + 1) * CELL_PX, col * CELL_PX : (col + 1) * CELL_PX] = stamp(kind, *shown)
    return picture


@cache
def _templates(kind: str) -> tuple[tuple[Stamp, ...], np.ndarray]:
    """Every stamp of a kind, and what it adds to black, (K, 768)."""
    every = tuple(product(SHAPES, SIZES, range(len(LEVELS) if kind == "depth" else 1)))
    black = backdrop("black").astype(np.float32)
    return every, np.stack([(stamp(kind, *s) - black).ravel() for s in every])


def read_map(pixels: np.ndarray, kind: str) -> dict[Cell, Stamp | None]:
    """The stamp in each filled cell of a map, uint8 (64, 64, 3); None where a cell shows something else."""
    require("kind of map", kind, KINDS)
    if pixels.shape != (SIDE_PX, SIDE_PX, 3) or pixels.dtype != np.uint8:
        wanted = (SIDE_PX, SIDE_PX, 3)
        raise ValueError(f"map of shape {pixels.shape} and type {pixels.dtype}, expected {wanted} and uint8")
    every, added = _templates(kind)
    cells = pixels.reshape(GRID, CELL_PX, GRID, CELL_PX, 3).swapaxes(1, 2).reshape(len(CELLS), -1)
    rest = cells.astype(np.float32) - backdrop("black").astype(np.float32).ravel()
    energy = (added**2).sum(1)
    error = (rest**2).sum(1)[:, None] - 2 * rest @ added.T + energy       # (16, K)
    best = error.argmin(1)
    found: dict[Cell, Stamp | None] = {}
    for cell, own, choice, errors in zip(CELLS, (rest**2).sum(1), best, error, strict=True):
        if own <= errors[choice]:                                           # black explains it better
            if own > MISFIT * energy.min():
                found[cell] = None
        else:
            found[cell] = every[choice] if errors[choice] <= MISFIT * energy[choice] else None
    return found
