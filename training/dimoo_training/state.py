"""Saving the state of a run so that a kill at any moment leaves the last whole one."""

from __future__ import annotations

from pathlib import Path

import torch


def save_state(path: Path, state: dict) -> None:
    """Write aside, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    torch.save(state, aside)
    aside.replace(path)


def load_state(path: Path) -> dict:
    """What `save_state` wrote. Only for files this project made: a pickle can run code."""
    return torch.load(path, weights_only=False)
