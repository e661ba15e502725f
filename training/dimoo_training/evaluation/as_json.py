"""Facts as JSON and back: a scene is its key, other facts are their fields with the name of their class."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from dimoo_training import world as w
from dimoo_training.puzzles import Problem

SCENE = "scene "


def to_json(fact: Any) -> Any:
    """Lists, dictionaries, strings and numbers."""
    if isinstance(fact, w.Scene):
        return SCENE + fact.key()
    if is_dataclass(fact):
        stated = {f.name: to_json(value) for f in fields(fact) if (value := getattr(fact, f.name)) is not None}
        return {"is": type(fact).__name__, **stated}
    return [to_json(item) for item in fact] if isinstance(fact, list | tuple) else fact


def from_json(data: Any) -> Any:
    """What `to_json` wrote; sequences inside facts are tuples again."""
    if isinstance(data, dict):
        made = {name: from_json(value) for name, value in data.items() if name != "is"}
        return _classes()[data["is"]](**{k: tuple(v) if isinstance(v, list) else v for k, v in made.items()})
    if isinstance(data, list):
        read = [from_json(item) for item in data]
        return read if read and is_dataclass(read[0]) else tuple(read)
    return w.Scene.from_key(data.removeprefix(SCENE)) if isinstance(data, str) and data.startswith(SCENE) else data


def _classes() -> dict[str, type]:
    from dimoo_training.evaluation.facts import Asked, Mapped

    known = (w.Caption, w.Claim, w.Pattern, w.Relation, w.Question, w.Edit, w.Reference, Problem, Asked, Mapped)
    return {known_class.__name__: known_class for known_class in known}
