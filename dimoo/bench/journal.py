"""Results kept as they are made, so that a long measurement that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Journal:
    """One JSON line a result, in `path`; without a path nothing is kept.

    Args:
        stamp: what the results depend on; those of another stamp are thrown away.
    """

    def __init__(self, path: Path | None = None, stamp: str = ""):
        self.path, self.stamp, self.known = path, stamp, {}
        if path is not None and path.exists():
            head, *lines = map(parsed, path.read_text("utf-8").split("\n")[1:] or [""])
            if head == stamp:
                self.known = {line["key"]: line["value"] for line in lines if line is not None}
            else:
                path.unlink()

    def remember(self, key: str, make: Callable[[], Any]) -> Any:
        """What `key` is known to be, or else what `make` gives now, which JSON must be able to hold."""
        if key not in self.known:
            self.known[key] = make()
            self._append({"key": key, "value": self.known[key]})
        return self.known[key]

    def _append(self, line: dict[str, Any]) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [line] if self.path.exists() else [self.stamp, line]
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines("\n" + json.dumps(each) for each in lines)         # so that a torn line spoils no other

    def forget(self) -> None:
        """All is done: nothing has to be kept."""
        self.known = {}
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def parsed(line: str) -> Any:
    """None for a line that was torn by a kill."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def fingerprint(*folders: Path) -> str:
    """A hash of all that stands in folders: code and weights that results depend on."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*") if "__pycache__" not in path.parts):
        if path.is_file():
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
