"""One loaded model that turns items into files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dimoo.batch.folder import failure, record, write
from dimoo.batch.items import Item
from dimoo.cli.flags import Machine
from dimoo.cli.session import load
from dimoo.engine import Engine, Job, Limits
from dimoo.images import save_png
from dimoo.settings import Settings


class Worker:
    """Answers items; their results are on the disk when `answer` returns."""

    def __init__(self, machine: Machine, out: Path, batch: int):
        self.session, self.out = load(machine), Path(out)
        self.engine = Engine(self.session.pipeline, Limits(batch=batch, linger=0))

    def answer(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """A record of each item, done or failed. What fits together is made together."""
        jobs = [self._submit(item) for item in items]
        return [self._finish(item, job) for item, job in zip(items, jobs, strict=True)]

    def _submit(self, item: Item) -> Job | Exception:
        try:
            task = item.request.task(self.session.pipeline.defaults)
            return self.engine.submit([task], Settings(**item.settings), seed=[item.start], wait=True)
        except Exception as error:              # of this item alone
            return error

    def _finish(self, item: Item, job: Job | Exception) -> dict[str, Any]:
        key = item.key(self.session.fingerprint)
        try:
            if isinstance(job, Exception):
                raise job
            return record(item, key, self._save(item, key, job))
        except Exception as error:
            return failure(item, key, error)

    def _save(self, item: Item, key: str, job: Job) -> dict[str, Any]:
        """Write the result with everything that made it; what it says about itself."""
        result = job.wait()
        (answer,) = result.answers
        request = {name: value for name, value in asdict(item.request).items() if value is not None}
        said = self.session.record({"task": item.request.name, **request}, job.settings, job.kind, item.start)
        said |= {"forwards": result.forwards, "item": {"id": item.id, "line": item.line, "key": key}}
        if item.kind == "text":
            said |= {"answer": answer, "seconds": round(result.seconds, 3)}
            write(self.out / item.file, json.dumps(said, ensure_ascii=False, indent=1) + "\n")
            return said
        said |= {"height": answer.height, "width": answer.width}
        save_png(answer, self.out / item.file, said)
        return {**said, "seconds": round(result.seconds, 3)}        # not in the picture: it would not repeat
