"""Facts about scenes: what a text claims, whether it holds, and a key that names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

from .scene import Cell, Object, Scene, require
from .words import PLACES, place_of

# name -> whether the first object stands so to the second; strict, so neither holds on one row or column.
RELATIONS: dict[str, Callable[[Object, Object], bool]] = {
    "left of": lambda first, second: first.cell[1] < second.cell[1],
    "right of": lambda first, second: first.cell[1] > second.cell[1],
    "above": lambda first, second: first.cell[0] < second.cell[0],
    "below": lambda first, second: first.cell[0] > second.cell[0],
}

INVERSE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}


@dataclass(frozen=True, slots=True)
class Pattern:
    """What is said of one object; None means nothing is said. `place` is a quadrant of PLACES."""

    shape: str | None = None
    color: str | None = None
    size: str | None = None
    cell: Cell | None = None
    place: str | None = None

    def __post_init__(self) -> None:
        if self.place is not None:
            require("place", self.place, tuple(PLACES))

    def matches(self, thing: Object) -> bool:
        """Whether everything said is true of `thing`."""
        return (
            self.shape in (None, thing.shape)
            and self.color in (None, thing.color)
            and self.size in (None, thing.size)
            and self.cell in (None, thing.cell)
            and (self.place is None or self.place == place_of(thing.cell))
        )

    def key(self) -> str:
        """Canonical text."""
        cell = None if self.cell is None else f"{self.cell[0]},{self.cell[1]}"
        return " ".join(value or "*" for value in (self.size, self.color, self.shape, cell, self.place))


@dataclass(frozen=True, slots=True)
class Relation:
    """Pattern number `first` stands in relation `name` to pattern number `second`."""

    first: int
    second: int
    name: str

    def __post_init__(self) -> None:
        require("relation", self.name, tuple(RELATIONS))

    def holds(self, things: tuple[Object, ...]) -> bool:
        """Whether it holds when pattern i is `things[i]`."""
        return RELATIONS[self.name](things[self.first], things[self.second])


@dataclass(frozen=True, slots=True)
class Claim:
    """A fact set: exactly these objects, perhaps one relation, perhaps a background."""

    patterns: tuple[Pattern, ...]
    relation: Relation | None = None
    background: str | None = None

    def holds(self, scene: Scene | None) -> bool:
        """Whether some one-to-one assignment of all objects to all patterns makes everything true.

        False for None, so that an unreadable picture fails.
        """
        if scene is None or len(scene.objects) != len(self.patterns):
            return False
        if self.background not in (None, scene.background):
            return False
        return any(self._fits(things) for things in permutations(scene.objects))

    def _fits(self, things: tuple[Object, ...]) -> bool:
        matched = all(p.matches(thing) for p, thing in zip(self.patterns, things, strict=True))
        return matched and (self.relation is None or self.relation.holds(things))

    def key(self, background: bool = True) -> str:
        """Canonical text of the fact set, whatever the wording and the order of the patterns.

        "left of" and "above" stand for their inverses. `background=False` leaves the background out.
        """
        said = self.background if background and self.background else "*"
        order = range(len(self.patterns))
        return min(self._key(turn) for turn in permutations(order)) + f"|{said}"

    def _key(self, turn: tuple[int, ...]) -> str:
        things = ";".join(self.patterns[i].key() for i in turn)
        return f"{things}|{self._relation_key(turn)}"

    def _relation_key(self, turn: tuple[int, ...]) -> str:
        if self.relation is None:
            return "*"
        first, second, name = self.relation.first, self.relation.second, self.relation.name
        if name in ("right of", "below"):
            first, second, name = second, first, INVERSE[name]
        return f"{turn.index(first)} {name} {turn.index(second)}"
