"""Speed against quality by name, where this version of the core has such a table."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dimoo.settings import Settings

PLACES = ("dimoo.presets", "dimoo.settings")
"""Modules that may hold the table PRESETS."""


def presets() -> list[str]:
    """Names that `Settings(preset=...)` takes; none when there is no such field."""
    if "preset" not in {field.name for field in fields(Settings)}:
        return []
    found = (getattr(import_module(place), "PRESETS", None) for place in PLACES if find_spec(place))
    return list(next(filter(None, found), ()))


def settings(**given: Any) -> Settings:
    """`Settings` from what was given; None is left to the checkpoint. Raises ValueError for a preset there is not."""
    stated = {name: value for name, value in given.items() if value is not None}
    if "preset" in stated and not presets():
        raise ValueError(f"there is no preset {stated['preset']!r}: this version has none")
    return Settings(**stated)
