"""What the files of a checkpoint folder say: json files, and the headers of its weights; no weight is read.

So the 8B checkpoint takes as long as a tiny one. Sizes are in bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dimoo.vocab import CheckpointError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
POINTER = b"version https://git-lfs"
LONGEST_HEADER = 100_000_000
"""What the format allows; an 8B model needs 30 thousand."""


@dataclass(frozen=True)
class Stored:
    """One tensor as the header of `file` states it; `size` is the bytes the header gives it."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    size: int


def read_tensors(folder: Path, variant: str | None = None) -> dict[str, Stored]:
    """Name -> what the weight files state; one file is preferred to shards, as transformers does.

    Raises:
        CheckpointError: no safetensors file, a damaged one, or an index that disagrees with its shards.
    """
    single, index = (folder / _with_variant(name, variant) for name in (WEIGHTS, INDEX))
    if single.is_file():
        return read_header(single)
    if index.is_file():
        return read_shards(index)
    pickled = [path.name for path in folder.glob("*.bin")]
    if pickled:
        raise CheckpointError(
            f"{folder} has only pickled weights ({few(pickled)}), and reading those can run code: "
            f"convert them to {WEIGHTS} first"
        )
    raise CheckpointError(f"{folder} has no weights: neither {single.name} nor {index.name}")


def read_shards(index: Path) -> dict[str, Stored]:
    """Tensors of all shards of an index.

    Raises:
        CheckpointError: the index and its shards do not name the same tensors, or a shard is missing.
    """
    homes = read_json(index).get("weight_map")
    if not isinstance(homes, dict) or not homes:
        raise CheckpointError(f"{index} has no weight_map from tensors to shards")
    homeless = [name for name, shard in homes.items() if not (isinstance(shard, str) and shard)]
    _refuse(homeless, f"{index} names no shard for")
    shards = sorted(set(homes.values()))
    absent = [shard for shard in shards if not (index.parent / shard).is_file()]
    _refuse(absent, f"{index}: {len(absent)} of {len(shards)} shards are not there:")
    found: dict[str, Stored] = {}
    for shard in shards:
        held = read_header(index.parent / shard)
        lost = [name for name, home in homes.items() if home == shard and name not in held]
        _refuse(lost, f"{index.parent / shard} does not hold what {index.name} says it has:")
        _refuse(
            [name for name in held if homes.get(name) != shard], f"{index} does not say that {shard} holds"
        )
        found |= held
    return found


def read_header(path: Path) -> dict[str, Stored]:
    """Tensors of one safetensors file: 8 bytes with the length of a json header, that header, the numbers.

    Raises:
        CheckpointError: an empty, cut or foreign file, or a Git LFS pointer.
    """
    _refuse_pointer(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start.ljust(8, b"\0"))[0]
        if not 0 < length <= min(size - 8, LONGEST_HEADER):
            raise CheckpointError(f"{path} is cut in its header ({size} bytes), or it is not safetensors")
        entries = _parse(path, file.read(length))
    entries.pop("__metadata__", None)
    try:
        ends = {name: 8 + length + entry["data_offsets"][1] for name, entry in entries.items()}
        found = {name: _stored(path, entry) for name, entry in entries.items()}
        promised = max(ends.values(), default=8 + length)
    except (LookupError, TypeError) as error:
        raise CheckpointError(f"{path}: its header does not describe tensors") from error
    cut = [name for name, end in ends.items() if end > size]
    _refuse(cut, f"{path} is cut: {size} of {promised} bytes, {len(cut)} of {len(ends)} tensors incomplete:")
    if size > promised:
        raise CheckpointError(f"{path} has {size} bytes, its header describes {promised}")
    return found


def read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    _refuse_pointer(path)
    return _parse(path, path.read_bytes())


def few(names: Iterable[str], most: int = 4) -> str:
    names = sorted(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _stored(path: Path, entry: dict[str, Any]) -> Stored:
    begin, end = entry["data_offsets"][:2]
    return Stored(path, str(entry["dtype"]), tuple(entry["shape"]), end - begin)


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise CheckpointError(f"{path}: invalid json: {error}") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path}: expected a json object, found {type(parsed).__name__}")
    return parsed


def _refuse_pointer(path: Path) -> None:
    """A Git LFS pointer is what git clones in place of a large file: a few lines of text naming it."""
    with path.open("rb") as file:
        if file.read(len(POINTER)) == POINTER:
            raise CheckpointError(
                f"{path} is a Git LFS pointer, not the file: run `git lfs pull` in its folder"
            )


def _refuse(names: list[str], words: str) -> None:
    if names:
        raise CheckpointError(f"{words} {few(names)}")


def _with_variant(name: str, variant: str | None) -> str:
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.{variant}.{suffix}" if variant else name
