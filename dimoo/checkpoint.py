"""What a checkpoint folder says about itself beside its parts: `model_index.json`."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from dimoo.settings import Defaults
from dimoo.vocab import CheckpointError

INDEX = "model_index.json"
PLACES = {"tokenizer_config.json": ("is_local", "local_files_only"), "vqvae/config.json": ("_name_or_path",)}
"""File -> what the libraries write into it about where it was loaded from."""


@contextmanager
def naming(folder: Path, what: str):
    """Turn whatever a library raises while loading `what` into a CheckpointError that names the folder."""
    try:
        yield
    except Exception as error:
        raise CheckpointError(f"{folder}: the {what} cannot be loaded: {error}") from error


def read_defaults(folder: Path) -> Defaults:
    """The sampling defaults in model_index.json; the hosted checkpoint states none and has the published ones."""
    path = folder / INDEX
    if not path.exists():
        return Defaults()
    try:
        index = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})") from error
    return Defaults.read(index.get("defaults", {}))


def read_ratio(folder: Path) -> int:
    """Pixels a code, from the image tokenizer's config."""
    path = folder / "vqvae" / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    return 2 ** (len(json.loads(path.read_text("utf-8"))["block_out_channels"]) - 1)


def write_index(folder: Path, defaults: Defaults, version: str) -> None:
    """model_index.json: the pipeline's class and the sampling defaults."""
    index = {"_class_name": "DiMOOPipeline", "_dimoo_version": version, "defaults": asdict(defaults)}
    aside = folder / (INDEX + ".part")
    aside.write_text(json.dumps(index, indent=2) + "\n", "utf-8")
    aside.replace(folder / INDEX)


def forget_places(folder: Path) -> None:
    """Take out of a saved folder where its parts came from: that is no property of theirs, and names the machine."""
    for name, fields in PLACES.items():
        if not (folder / name).exists():                        # a checkpoint of text alone has no image tokenizer
            continue
        stated = json.loads((folder / name).read_text("utf-8"))
        kept = {field: value for field, value in stated.items() if field not in fields}
        if kept != stated:
            (folder / name).write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", "utf-8")
