"""From what a user gives (an object, a table key, `module:Name`, `file.py:Name`) to the variant itself."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def resolve(name: str | T, table: Mapping[str, T], kind: str) -> T:
    """The variant called `name`; an object passes through unchanged.

    `kind` is the word for messages ("cache", "scheduler"). A string is a key of `table`, or else
    `module:Name` or `path/to/file.py:Name`. Raises ValueError listing what exists; an error inside the
    loaded code itself comes through as it is.
    """
    if not isinstance(name, str):
        return name
    if name in table:
        return table[name]
    source, colon, attribute = name.rpartition(":")
    if not (colon and source and attribute):
        raise ValueError(
            f"unknown {kind} {name!r}{choices(name, table)}; your own: module:Name or file.py:Name"
        )
    module = _load_file(source, kind) if source.endswith(".py") else _load_module(source, kind)
    if not hasattr(module, attribute):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise ValueError(f"{kind} {name!r}: {source} has no {attribute!r}{choices(attribute, public)}")
    return getattr(module, attribute)


def choices(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is none: the nearest that is one, and all there are."""
    known = sorted(known)
    near = get_close_matches(name, known, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ";"
    return f"{hint} there is: {', '.join(known) or 'nothing'}"


def _load_module(source: str, kind: str) -> ModuleType:
    if not all(part.isidentifier() for part in source.split(".")):
        raise ValueError(f"{kind}: {source!r} is neither a module nor a .py file")
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{source}.".startswith(f"{error.name}."):
            raise  # the module exists, something that it imports does not
        message = f"{kind}: no module named {error.name!r}; a file is given as file.py:Name"
        raise ValueError(message) from error


def _load_file(source: str, kind: str) -> ModuleType:
    path = Path(source).expanduser().resolve()
    if not path.is_file():
        beside = path.parent.glob("*.py") if path.parent.is_dir() else ()
        raise ValueError(f"{kind}: no file {str(path)!r}{choices(path.name, (p.name for p in beside))}")
    name = f"{path.stem}_{hashlib.sha1(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:  # one file is one module, as with import
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
