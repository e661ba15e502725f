"""Where a checkpoint lies: embedded, in a folder, or on the hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from dimoo.assets import asset
from dimoo.vocab import CheckpointError

EMBEDDED = ("dimoo-tiny",)
HOSTED = "Alpha-VLLM/Lumina-DiMOO"
FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
"""What is fetched: never pickled weights."""


def is_on_hub(name: str | os.PathLike) -> bool:
    """Whether `name` is no folder and not embedded."""
    return not Path(name).is_dir() and str(name) not in EMBEDDED


def locate(name: str | os.PathLike, subfolder: str = "", **hub: Any) -> Path:
    """The folder of a checkpoint: the embedded one by name, a folder as it is, else a hub id that is fetched.

    Args:
        subfolder: of a hub id, the part that is fetched; it stays part of the path that is returned.
        hub: revision, token, cache_dir, local_files_only, force_download.

    Raises:
        CheckpointError: saying what was looked for.
    """
    path = Path(name)
    if not is_on_hub(name):
        return path if path.is_dir() else asset(str(name))
    if path.is_absolute() or str(name).count("/") != 1:
        known = ", ".join(EMBEDDED)
        raise CheckpointError(f"no checkpoint {str(name)!r}: neither a folder, nor a hub id (owner/name), nor {known}")
    wanted = [f"{subfolder}/{pattern}" if subfolder else pattern for pattern in FILES]
    try:
        return Path(snapshot_download(str(name), allow_patterns=wanted, **hub))
    except Exception as error:  # the hub's own errors are many; the user needs one sentence and the cause
        raise CheckpointError(f"could not get {str(name)!r} from the hub: {error}") from error
