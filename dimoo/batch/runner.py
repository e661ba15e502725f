"""Running a batch: what is left to do, by one worker here, several processes, or a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dimoo.batch.folder import Folder
from dimoo.batch.items import Item
from dimoo.batch.worker import Worker
from dimoo.cli.extras import reach
from dimoo.cli.flags import Machine
from dimoo.cli.session import MODEL, fingerprint
from dimoo.locate import locate

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class Plan:
    """How a batch is run: the model and device of each worker, how many workers, how many items at once, where to."""

    machine: Machine
    out: Path
    workers: int = 1
    batch: int = 16

    def __post_init__(self):
        for name in ("workers", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}")

    def model(self) -> str:
        """The fingerprint of the weights, without loading them."""
        return fingerprint(locate(self.machine.model or MODEL))


def here(plan: Plan, chunks: Sequence[list[Item]]) -> Iterator[Records]:
    """One worker in this process, or `plan.workers` of them in processes of their own, a GPU each where there are."""
    if plan.workers == 1:
        worker = Worker(plan.machine, plan.out, plan.batch)
        yield from map(worker.answer, chunks)
        return
    context = multiprocessing.get_context("spawn")
    arguments = (plan, os.getpid(), context.Value("i", 0))
    with ProcessPoolExecutor(plan.workers, context, _start, arguments) as pool:
        waiting = [pool.submit(_answer, chunk) for chunk in chunks]
        try:
            for done in as_completed(waiting):
                yield done.result()
        except BrokenProcessPool as error:
            raise OSError("a worker process died (out of memory?); run the same command again to go on") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def on_ray(plan: Plan, chunks: Sequence[list[Item]]) -> Iterator[Records]:
    """Actors of a Ray cluster, see `dimoo.batch.on_ray`."""
    yield from reach("dimoo.batch.on_ray:run", "ray")(plan, chunks)


ENGINES: dict[str, Callable[[Plan, Sequence[list[Item]]], Iterator[Records]]] = {"local": here, "ray": on_ray}


def run(items: Sequence[Item], plan: Plan, engine: str = "local", tell: Callable[[int], None] = lambda count: None,
        geneval: Path | None = None) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Do what is not done yet. Returns id -> record of all items; the folder has its manifest then.

    `tell` is called with the number of items that are done, again whenever it grows.
    """
    folder = Folder(plan.out, plan.model())
    with folder.locked():
        if geneval:
            folder.describe(geneval)
        records = folder.done(items)
        tell(len(records))
        left = sorted((item for item in items if item.id not in records), key=lambda item: item.together)
        chunks = [left[k : k + plan.batch] for k in range(0, len(left), plan.batch)]
        if chunks:
            for made in ENGINES[engine](replace(plan, workers=min(plan.workers, len(chunks))), chunks):
                folder.note(made)
                records |= {one["id"]: one for one in made}
                tell(len(records))
        folder.conclude(items, records)
    return records


# Inside the worker processes.

_worker: Worker


def _start(plan: Plan, parent: int, count) -> None:
    global _worker
    import torch

    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with count.get_lock():
        number, count.value = count.value, count.value + 1
    torch.set_num_threads(max(1, torch.get_num_threads() // plan.workers))
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    machine = plan.machine
    if gpus > 1 and machine.device in (None, "auto", "cuda"):
        machine = replace(machine, device=f"cuda:{number % gpus}")
    _worker = Worker(machine, plan.out, plan.batch)


def _answer(chunk: list[Item]) -> Records:
    return _worker.answer(chunk)


def _end_with(parent: int) -> None:
    """A parent that is killed cannot tell its workers; they must not go on without it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
