"""Saving so that a kill at any moment leaves the last whole file or folder."""

from __future__ import annotations

import shutil
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


def replace_folder(aside: Path, folder: Path) -> None:
    """Put `aside` in the place of `folder`. Between two renames there is `folder.old` instead."""
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.replace(old)
    aside.replace(folder)
    shutil.rmtree(old, ignore_errors=True)
