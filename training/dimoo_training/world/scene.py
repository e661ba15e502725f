"""The scene graph: a few objects on a 4x4 grid of cells, on one background."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

GRID = 4
CELL_PX = 16
SIDE_PX = GRID * CELL_PX

Cell = tuple[int, int]
T = TypeVar("T")

SHAPES = ("circle", "square", "triangle", "star", "heart", "cross", "diamond", "ring")
COLORS = ("red", "green", "blue", "yellow", "purple", "orange", "cyan", "pink")
SIZES = ("large", "small")
BACKGROUNDS = ("white", "black", "gray", "striped", "checkered")


def pick(items: Sequence[T], rng: np.random.Generator) -> T:
    """One item, uniformly. Much faster than `rng.choice` on short tuples."""
    return items[int(rng.integers(len(items)))]


def require(what: str, value: object, allowed: Sequence[object]) -> None:
    """Raise ValueError naming `value` and the allowed ones unless it is one of them."""
    if value not in allowed:
        raise ValueError(f"unknown {what} {value!r}, expected one of {', '.join(map(str, allowed))}")


@dataclass(frozen=True, slots=True)
class Object:
    """One thing: what it is and the cell (row, col) it fills, both from 0 at the top left."""

    shape: str
    color: str
    size: str
    cell: Cell

    def __post_init__(self) -> None:
        require("shape", self.shape, SHAPES)
        require("color", self.color, COLORS)
        require("size", self.size, SIZES)
        row, col = self.cell
        if not (0 <= row < GRID and 0 <= col < GRID):
            raise ValueError(f"cell {self.cell!r} is outside the grid, rows and columns are 0..{GRID - 1}")

    @property
    def looks(self) -> tuple[str, str, str]:
        """Shape, colour and size: everything but the place."""
        return self.shape, self.color, self.size


@dataclass(frozen=True, slots=True)
class Scene:
    """Objects sorted by cell, and a background. Equal scenes are equal pictures."""

    objects: tuple[Object, ...]
    background: str

    def __post_init__(self) -> None:
        require("background", self.background, BACKGROUNDS)
        ordered = tuple(sorted(self.objects, key=lambda thing: thing.cell))
        object.__setattr__(self, "objects", ordered)
        if len({thing.cell for thing in ordered}) < len(ordered):
            raise ValueError(f"objects share a cell: {[thing.cell for thing in ordered]}")

    def key(self) -> str:
        """A stable text naming the scene: the unit of held-out splits."""
        things = ";".join(f"{t.size} {t.color} {t.shape}@{t.cell[0]},{t.cell[1]}" for t in self.objects)
        return f"{things}|{self.background}"

    @classmethod
    def from_key(cls, key: str) -> Scene:
        """The scene that `key` names."""
        things, background = key.split("|")
        return cls(tuple(_object_of(thing) for thing in things.split(";") if thing), background)

    def at(self, cell: Cell) -> Object | None:
        """The object in `cell`, or None."""
        return next((thing for thing in self.objects if thing.cell == cell), None)

    def free_cells(self) -> tuple[Cell, ...]:
        """Cells without an object, in reading order."""
        taken = {thing.cell for thing in self.objects}
        return tuple(cell for cell in CELLS if cell not in taken)


def _object_of(key: str) -> Object:
    """ "large red circle@0,1"."""
    looks, cell = key.split("@")
    size, color, shape = looks.split(" ")
    row, col = cell.split(",")
    return Object(shape, color, size, (int(row), int(col)))


@dataclass(frozen=True)
class World:
    """Which values scenes draw from."""

    shapes: tuple[str, ...]
    colors: tuple[str, ...]
    sizes: tuple[str, ...]
    backgrounds: tuple[str, ...]
    max_objects: int = 4
    grid: int = field(default=GRID, init=False)
    cell_px: int = field(default=CELL_PX, init=False)

    def sample(self, rng: np.random.Generator, n_objects: int | None = None) -> Scene:
        """A uniform random scene of `n_objects` (1..max_objects; None: drawn) on distinct cells."""
        if n_objects is None:
            n_objects = 1 + int(rng.integers(self.max_objects))
        require("number of objects", n_objects, range(1, self.max_objects + 1))
        cells = sample_cells(n_objects, rng)
        return Scene(tuple(self.sample_object(cell, rng) for cell in cells), pick(self.backgrounds, rng))

    def sample_object(self, cell: Cell, rng: np.random.Generator) -> Object:
        """A random object in `cell`."""
        return Object(pick(self.shapes, rng), pick(self.colors, rng), pick(self.sizes, rng), cell)


CELLS: tuple[Cell, ...] = tuple((row, col) for row in range(GRID) for col in range(GRID))


def sample_cells(count: int, rng: np.random.Generator) -> tuple[Cell, ...]:
    """`count` distinct cells in random order."""
    return tuple(CELLS[i] for i in rng.permutation(len(CELLS))[:count])


WORLDS: dict[str, World] = {
    "first": World(SHAPES[:6], COLORS[:6], SIZES[:1], BACKGROUNDS[:3]),
    "full": World(SHAPES, COLORS, SIZES, BACKGROUNDS),
}


def smallest_world(scene: Scene) -> World:
    """The first world of WORLDS whose values cover the scene."""
    for world in WORLDS.values():
        if scene.background in world.backgrounds and all(_covers(world, t) for t in scene.objects):
            return world
    raise ValueError(f"no world of {', '.join(WORLDS)} covers the scene {scene.key()!r}")


def _covers(world: World, thing: Object) -> bool:
    return thing.shape in world.shapes and thing.color in world.colors and thing.size in world.sizes
