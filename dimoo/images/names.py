"""Names of picture files: safe for any prompt, and never one that is taken."""

from __future__ import annotations

import itertools
import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from dimoo.images.source import ImageError

_MAX_SLUG = 80  # bytes; leaves room for seed, index and counter under the usual 255


def safe_filename(prompt: str, seed: int, index: int = 0, ext: str = "png") -> str:
    """`a-red-circle_7_0.png`: letters, marks and digits of any script, at most 80 bytes, then seed and index.

    Never a path, an option, hidden, or a name Windows reserves (the seed sees to that); an empty prompt
    becomes `picture`. Raises ImageError for an extension that is not letters and digits, and for a seed or
    index that is not an integer.
    """
    bare = ext.removeprefix(".")
    if not (bare.isascii() and bare.isalnum()):
        raise ImageError(f"file extension {ext!r}; allowed: letters and digits")
    try:
        return f"{_slug(prompt)}_{int(seed)}_{int(index)}.{bare}"
    except (TypeError, ValueError) as error:
        raise ImageError(f"seed {seed!r}, index {index!r}; allowed: integers") from error


def unique_path(folder: str | os.PathLike, name: str) -> Path:
    """Reserve `folder/name`, or `name-2`, `name-3`, ... when taken, as an empty file and return its path.

    Reserving creates the file in one step, so two processes never get the same path. Missing folders are
    made. Raises ImageError for a name that is not a bare file name and a folder that cannot be written.
    """
    if not name or name in (".", "..") or any(char in name for char in "/\\\0"):
        raise ImageError(f"file name {name!r}; allowed: a bare file name without slashes")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for path in _candidates(Path(folder) / name):
            try:
                path.open("xb").close()
                return path
            except FileExistsError:
                continue
    except (OSError, ValueError) as error:
        raise ImageError(f"{Path(folder) / name}: cannot be written ({error})") from error
    raise AssertionError("the candidates never end")


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for count in itertools.count(2):
        yield path.with_name(f"{path.stem}-{count}{path.suffix}")


def _slug(prompt: str) -> str:
    plain = unicodedata.normalize("NFKC", prompt or "").lower()
    kept = "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in plain)
    words = "-".join(kept.split())
    slug = words.encode()[:_MAX_SLUG].decode(errors="ignore").strip("-")
    return slug or "picture"
