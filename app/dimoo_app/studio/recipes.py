"""Ways to decode a text, and keeping what is already there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dimoo.canvas import Row
from dimoo.recipes import RECIPES, Recipe
from dimoo.settings import Defaults
from dimoo.tasks import Codec, Text
from dimoo.tasks.text import row_of

Fields = Mapping[str, Any]
"""Of `Settings`."""


def recipes(defaults: Defaults) -> dict[str, Callable[[int], Fields]]:
    """Name -> from the length of the answer to fields of `Settings`: budgets of steps, and the core's own table."""
    half = max(1, defaults.text_steps // 2)
    budgets: dict[str, Fields] = {
        "the model's own": {},
        f"half the steps ({half})": {"num_inference_steps": half},
        "all at once (1 step)": {"num_inference_steps": 1},
    }
    found: dict[str, Callable[[int], Fields]] = {name: _always(given) for name, given in budgets.items()}
    return found | {f"{name}: {one.source}": _careful(one) for name, one in RECIPES.items()}


def _always(given: Fields) -> Callable[[int], Fields]:
    return lambda length: given


def _careful(recipe: Recipe) -> Callable[[int], Fields]:
    """A recipe at its first budget, the most careful one."""
    return lambda length: recipe.at(recipe.budgets[0], length)


@dataclass
class Kept(Text):
    """An answer of which some tokens stay: `keep` maps positions in the answer (from 0) to ids."""

    keep: Mapping[int, int] = field(default_factory=dict)

    def prepare(self, codec: Codec) -> Row:
        ids = [self.keep.get(place, codec.vocab.mask) for place in range(self.length)]
        return row_of(codec, self.prompt, self.history, ids)


def read_marks(text: str, length: int) -> set[int]:
    """ "3-5, 9" -> {3, 4, 5, 9}: positions from 1 to `length`. Raises ValueError for what is no position."""
    marks: set[int] = set()
    for part in filter(None, (part.strip() for part in text.replace(";", ",").split(","))):
        first, dash, last = part.partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()):
            raise ValueError(f"marked tokens are positions such as 3-5, 9; got {part!r}")
        low, high = int(first), int(last) if dash else int(first)
        if not 1 <= low <= high <= length:
            raise ValueError(f"marked tokens lie between 1 and {length}, got {part!r}")
        marks |= set(range(low, high + 1))
    return marks


def say_marks(marks: set[int]) -> str:
    """The inverse of `read_marks`."""
    parts, left = [], sorted(marks)
    while left:
        last = left[0]
        while last + 1 in marks:
            last += 1
        parts.append(str(left[0]) if last == left[0] else f"{left[0]}-{last}")
        left = [mark for mark in left if mark > last]
    return ", ".join(parts)


def kept(answer: list[int], marks: set[int], reopen: bool, mask: int) -> dict[int, int]:
    """What stays of the last answer: the marked tokens (counted from 1), or all but them. Masks never stay."""
    chosen = {place for place in range(len(answer)) if (place + 1 in marks) != reopen}
    return {place: answer[place] for place in sorted(chosen) if answer[place] != mask}
