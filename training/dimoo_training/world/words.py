"""Words and phrases shared by captions, questions and edits. All lower case, no full stop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .scene import GRID, Cell, Object, Scene, pick

NUMBERS = ("zero", "one", "two", "three", "four")

HALF = GRID // 2
# Quadrants of the grid: (row half, column half).
PLACES: dict[str, tuple[int, int]] = {
    "top left": (0, 0),
    "top right": (0, 1),
    "bottom left": (1, 0),
    "bottom right": (1, 1),
}
_PLACE_OF = {halves: name for name, halves in PLACES.items()}

PLAIN = 0.6  # share of texts in their plainest wording


def place_of(cell: Cell) -> str:
    """The quadrant a cell lies in."""
    return _PLACE_OF[cell[0] // HALF, cell[1] // HALF]


def plural(shape: str) -> str:
    """ "circles", "crosses"."""
    return shape + ("es" if shape.endswith("s") else "s")


def a(noun: str) -> str:
    """The noun phrase with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def noun(shape: str | None = None, color: str | None = None, size: str | None = None) -> str:
    """A noun phrase of the known attributes: "small red circle", "red object"."""
    return " ".join(word for word in (size, color, shape or "object") if word)


def reword(wordings: Sequence[str], rng: np.random.Generator) -> str:
    """The first wording most of the time (PLAIN), else one of the others."""
    if len(wordings) == 1 or rng.random() < PLAIN:
        return wordings[0]
    return pick(wordings[1:], rng)


def refer(scene: Scene, thing: Object) -> str | None:
    """The shortest noun naming `thing` without doubt: its shape, else colour and shape, else None."""
    twins = [other for other in scene.objects if other.shape == thing.shape]
    if len(twins) == 1:
        return thing.shape
    if sum(other.color == thing.color for other in twins) == 1:
        return noun(thing.shape, thing.color)
    return None


def referable(scene: Scene) -> list[tuple[Object, str]]:
    """Objects that can be named without doubt, with their names."""
    named = ((thing, refer(scene, thing)) for thing in scene.objects)
    return [(thing, name) for thing, name in named if name]
