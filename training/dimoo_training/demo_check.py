"""What the demo asks for, and whether the oracle finds it in the pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dimoo_training.world import Claim, Edit, Object, Pattern, Relation, Scene, edit_holds, parse
from dimoo_training.world.scene import CELL_PX
from dimoo_training.world.words import noun

Box = tuple[int, int, int, int]
"""left, top, right, bottom in pixels."""

DRAWINGS: dict[str, Claim] = {
    "a star": Claim((Pattern("star"),)),
    "a red circle": Claim((Pattern("circle", "red"),)),
    "a square and a heart": Claim((Pattern("square"), Pattern("heart"))),
    "a red circle to the left of a blue square": Claim(
        (Pattern("circle", "red"), Pattern("square", "blue")), Relation(0, 1, "left of")
    ),
}
"""Prompt -> what must be in the picture, and nothing else."""
CIRCLE, PAIR = tuple(DRAWINGS)[1], tuple(DRAWINGS)[3]
INSTRUCTION, COLOUR = "make the circle green", "green"
"""The edit of CIRCLE."""
FILLING = "a red circle and a yellow star"
FILLED = Claim((Pattern("circle", "red"), Pattern("star", "yellow")))
"""What PAIR becomes when its square is cut out."""
QUESTION = "what colour is the circle?"


@dataclass(frozen=True)
class Verdict:
    """Whether it is right, and what was read."""

    right: bool
    read: str


Judge = Callable[[np.ndarray], Verdict]
"""A picture (64, 64, 3) uint8 -> the verdict."""


def read(scene: Scene | None) -> str:
    """A scene in a few words."""
    if scene is None:
        return "unreadable"
    things = " and ".join(noun(thing.shape, thing.color) for thing in scene.objects)
    return f"{things or 'nothing'} on {scene.background}"


def shows(claim: Claim) -> Judge:
    """Judges whether exactly this is in the picture."""

    def judge(pixels: np.ndarray) -> Verdict:
        scene = parse(pixels).scene
        return Verdict(claim.holds(scene), read(scene))

    return judge


def recoloured(source: np.ndarray, color: str = COLOUR) -> Judge:
    """Judges whether the one circle of the source has the colour now, and everything else is as it was."""

    def judge(pixels: np.ndarray) -> Verdict:
        before, after = parse(source).scene, parse(pixels).scene
        circle = only_circle(before)
        if circle is None:
            return Verdict(False, f"{read(after)}; the source: {read(before)}")
        others = tuple(thing for thing in before.objects if thing != circle)
        target = Scene((*others, replace(circle, color=color)), before.background)
        edit = Edit(INSTRUCTION, "recolor", before, target)
        return Verdict(circle.color != color and all(edit_holds(edit, after)), read(after))

    return judge


def answered(answer: str, pixels: np.ndarray) -> Verdict:
    """Whether the answer is the colour of the one circle that the oracle sees."""
    circle = only_circle(parse(pixels).scene)
    seen = circle.color if circle else "no single circle"
    return Verdict(circle is not None and answer.strip(" .").lower() == seen, f"{seen}; the answer: {answer!r}")


def only_circle(scene: Scene | None) -> Object | None:
    circles = [thing for thing in scene.objects if thing.shape == "circle"] if scene else []
    return circles[0] if len(circles) == 1 else None


def hole(pixels: np.ndarray) -> Box:
    """The cell of the square; where there is none, a cell on the right of the middle."""
    cells = [thing.cell for thing in parse(pixels).objects if thing.shape == "square"]
    row, column = cells[0] if cells else (1, 2)
    return column * CELL_PX, row * CELL_PX, (column + 1) * CELL_PX, (row + 1) * CELL_PX
