"""Ways to decode a text, and keeping what is already there, with whatever the core offers."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from dimoo.canvas import Row
from dimoo.settings import Defaults, Settings
from dimoo.tasks import TASKS, Ask, Codec, Task

PLACES = ("dimoo.recipes", "dimoo.sampling.recipes", "dimoo.sampling")
"""Modules that may hold the table RECIPES: name -> fields of `Settings`."""


def recipes(defaults: Defaults) -> dict[str, dict[str, Any]]:
    """Name -> fields of `Settings`: the core's own table where there is one, and budgets of steps in any case."""
    half = max(1, defaults.text_steps // 2)
    found: dict[str, dict[str, Any]] = {
        "the model's own": {},
        f"half the steps ({half})": {"num_inference_steps": half},
        "all at once (1 step)": {"num_inference_steps": 1},
    }
    if "recipe" in {one.name for one in fields(Settings)}:
        found |= {name: {"recipe": name} for name in _table()}
    else:
        found |= {name: given for name, given in _table().items() if isinstance(given, dict)}
    return found


def _table() -> dict[str, Any]:
    found = (getattr(import_module(place), "RECIPES", None) for place in PLACES if _there(place))
    return dict(next(filter(None, found), {}))


def _there(place: str) -> bool:
    try:
        return find_spec(place) is not None
    except ModuleNotFoundError:
        return False


@dataclass
class Kept(Ask):
    """An answer of which some tokens stay: `keep` maps positions in the answer (from 0) to ids."""

    keep: dict[int, int] = field(default_factory=dict)

    def prepare(self, codec: Codec) -> Row:
        row = super().prepare(codec)
        answer = row.answer.clone()
        for position, index in self.keep.items():
            answer[1 + position] = index
        return replace(row, answer=answer)


def text_task(prompt: str, length: int, keep: dict[int, int]) -> Task:
    """The task that answers `prompt`. The core's own text task is used where its `keep` takes what ours does."""
    own = TASKS.get("text")
    if own and "keep" in (given := inspect.signature(own).parameters) and "length" in given:
        annotation = str(given["keep"].annotation)
        if annotation.startswith(("dict[int, int]", "Mapping[int, int]")):
            return own(prompt, length=length, keep=keep)
    return Kept(prompt, length=length, keep=keep)


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


def kept(ids: torch.Tensor | None, marks: set[int], reopen: bool, mask: int) -> dict[int, int]:
    """What stays of the last answer (T,) with markers: the marked tokens, or all but them. Masks never stay."""
    if ids is None:
        return {}
    answer = ids[1:-1].tolist()
    chosen = {place for place in range(len(answer)) if (place + 1 in marks) != reopen}
    return {place: answer[place] for place in sorted(chosen) if answer[place] != mask}
