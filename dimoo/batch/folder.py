"""The folder of a batch: results, the journal that survives a kill, and the manifest in input order.

    pictures/ID.png, answers/ID.json    results, written aside and renamed, each saying which request it answers
    journal.jsonl                       a line for each finished item, in the order in which they finished
    manifest.jsonl, failures.jsonl      a line for each line of the input, and for each that failed; written at the end

A result whose line in the journal was lost to a kill is found by what it says about itself, and not made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dimoo.batch.items import Item, lines
from dimoo.images import ImageError, read_parameters

JOURNAL, MANIFEST, FAILURES, LOCK = "journal.jsonl", "manifest.jsonl", "failures.jsonl", ".lock"
TOLD = ("seed", "index", "forwards", "seconds", "height", "width", "answer")
"""What the manifest repeats of a result."""


class Folder:
    """One batch's folder; `model` is the fingerprint of the weights."""

    def __init__(self, path: Path, model: str):
        self.path, self.model = path, model

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises ValueError when another run is writing here."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise ValueError(f"{self.path}: another dimoo batch is writing here") from error
        with lock:
            self.sweep()
            yield

    def sweep(self) -> None:
        """Remove what a kill left half written."""
        for part in self.path.glob("**/.*.part"):
            part.unlink(missing_ok=True)

    def describe(self, geneval: Path) -> None:
        """GenEval's metadata.jsonl, one beside the samples of each prompt."""
        for place, (_, text) in enumerate(lines(geneval)):
            write(self.path / f"{place:05}" / "metadata.jsonl", text.strip() + "\n")

    def done(self, items: Iterable[Item]) -> dict[str, dict[str, Any]]:
        """id -> record of every item whose result is there."""
        stated = self._journal()
        found = {}
        for item in items:
            key, record = item.key(self.model), stated.get(item.id)
            if record is None or record["status"] != "done" or record["key"] != key:
                record = self._adopted(item, key)
            if record and (self.path / item.file).is_file():
                found[item.id] = record
        return found

    def _journal(self) -> dict[str, dict[str, Any]]:
        path = self.path / JOURNAL
        records: dict[str, dict[str, Any]] = {}
        for text in path.read_text("utf-8", errors="replace").splitlines() if path.exists() else ():
            with contextlib.suppress(ValueError, TypeError, KeyError):          # the line a kill cut off
                record = json.loads(text)
                records[record["id"]] = record
        return records

    def _adopted(self, item: Item, key: str) -> dict[str, Any] | None:
        """The record of a result that is there without a line in the journal."""
        path = self.path / item.file
        try:
            said = read_parameters(path) if path.suffix == ".png" else json.loads(path.read_text("utf-8"))
        except (ImageError, OSError, ValueError):
            return None
        return record(item, key, said) if said.get("item", {}).get("key") == key else None

    def note(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Add to the journal, for good before this returns."""
        with (self.path / JOURNAL).open("ab") as file:
            if file.tell() and not self._ends_clean():
                file.write(b"\n")                                               # behind a line that was cut off
            file.write("".join(_json(one) for one in records).encode())
            file.flush()
            os.fsync(file.fileno())

    def _ends_clean(self) -> bool:
        with (self.path / JOURNAL).open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def conclude(self, items: Iterable[Item], records: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the manifest in the order of the input, and the failures."""
        ordered = [{**records[item.id], "prompt": item.request.prompt} for item in items if item.id in records]
        write(self.path / MANIFEST, "".join(map(_json, ordered)))
        write(self.path / FAILURES, "".join(_json(one) for one in ordered if one["status"] == "failed"))


def record(item: Item, key: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """The journal's line of a result, from what the result says about itself."""
    base = {"line": item.line, "id": item.id, "status": "done", "task": item.request.name, "file": item.file}
    return {**base, "key": key, **{name: said[name] for name in TOLD if name in said}}


def failure(item: Item, key: str, error: BaseException | str) -> dict[str, Any]:
    base = {"line": item.line, "id": item.id, "status": "failed", "task": item.request.name, "key": key}
    return {**base, "error": str(error) or type(error).__name__}


def write(path: Path, text: str) -> None:
    """Write aside, then rename: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with aside.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) + "\n"
