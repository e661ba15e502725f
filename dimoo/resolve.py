"""From what a user gives (an object, a table key, `module:Name`, `file.py:Name`) to the variant itself.

`build` also takes settings in brackets, as in `threshold(threshold=0.8)` or `mine.py:Mine(speed=2)`.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

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


def build(spec: Any, table: Mapping[str, Any], kind: str, **offered: Any) -> Any:
    """The object that `spec` describes, built if it is a class: a name with or without settings in brackets.

    `offered` are settings a class gets if it has such fields and the brackets do not say otherwise. Raises
    ValueError for a setting that there is not, listing those there are.
    """
    if not isinstance(spec, str):
        return spec(**_fitting(spec, offered)) if isinstance(spec, type) else spec
    name, bracket, rest = spec.strip().partition("(")
    stated = _read_settings(spec, kind) if bracket else {}
    made = resolve(name.strip(), table, kind)
    if not isinstance(made, type):
        if stated:
            raise ValueError(f"{kind} {name!r} has no settings, got {spec!r}")
        return made
    known = inspect.signature(made).parameters
    if unknown := [key for key in stated if key not in known]:
        raise ValueError(f"{kind} {name!r} has no setting {unknown[0]!r}{choices(unknown[0], known)}")
    return made(**_fitting(made, offered) | stated)


def _fitting(made: type, offered: Mapping[str, Any]) -> dict[str, Any]:
    known = inspect.signature(made).parameters
    return {key: value for key, value in offered.items() if key in known}


def _read_settings(spec: str, kind: str) -> dict[str, Any]:
    """ "name(a=1, b=word)" -> {"a": 1, "b": "word"}; values are numbers, words, None, True, False or tuples."""
    try:
        call = ast.parse("f" + spec[spec.index("(") :].strip(), mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        return {word.arg: _value(word.value) for word in call.keywords if word.arg is not None}
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{kind}: {spec!r} is not of the form name(setting=value, ...)") from error


def _value(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


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
