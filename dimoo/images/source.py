"""Where a picture comes from, under one name for errors: a path, bytes, an open file, or a picture in memory."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

SOURCES = "a path, bytes, an open binary file, a Pillow image, a numpy array or a torch tensor"


class ImageError(ValueError):
    """A picture, mask or picture file that cannot be used; says which one and what is allowed."""


@contextmanager
def open_source(source: Any) -> Iterator[tuple[BinaryIO, str]]:
    """Yield (binary file at its start, name for errors) for a path, bytes or an open file.

    A file opened here is closed here; the caller's own file stays open. Raises ImageError when the source is
    missing, a folder, unreadable, empty or of another type.
    """
    name = name_of(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        yield _rewound(io.BytesIO(source), name), name
    elif isinstance(source, (str, os.PathLike)):
        with _open_path(source, name) as file:
            yield _rewound(file, name), name
    elif hasattr(source, "read"):
        yield _rewound(source, name), name
    else:
        raise ImageError(f"cannot read a picture from {type(source).__name__}; allowed: {SOURCES}")


def name_of(source: Any) -> str:
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        return repr(name) if not name or len(name) > 1000 else str(name)
    if is_array(source):
        return f"<{type(source).__module__.split('.')[0]} {tuple(source.shape)} {source.dtype}>"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "<bytes>"
    name = getattr(source, "filename", None) or getattr(source, "name", None)
    return name if isinstance(name, str) else f"<{type(source).__name__}>"


def _open_path(path: str | os.PathLike, name: str) -> BinaryIO:
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)  # asked first: opening a pipe waits for a writer
        file = open(path, "rb") if regular else None  # noqa: SIM115 - the caller closes it
    except FileNotFoundError as error:
        raise ImageError(f"{name}: no such file") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise ImageError(f"{name}: cannot be opened ({error})") from error
    if file is None:
        raise ImageError(f"{name}: a folder or device; allowed: a picture file")
    return file


def _rewound(file: Any, name: str) -> BinaryIO:
    try:
        if not getattr(file, "seekable", lambda: False)():
            file = io.BytesIO(file.read())
        file.seek(0)
        first = file.read(1)
        file.seek(0)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ImageError(f"{name}: cannot be read ({error})") from error
    if isinstance(first, str):
        raise ImageError(f"{name}: opened as text; allowed: a file opened in binary mode")
    if not first:
        raise ImageError(f"{name}: empty; allowed: a picture file")
    return file


def is_array(source: Any) -> bool:
    torch = sys.modules.get("torch")  # a tensor can only exist once somebody imported torch
    return isinstance(source, np.ndarray) or (torch is not None and isinstance(source, torch.Tensor))
