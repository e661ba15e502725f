"""The engine: a bounded queue, and one thread that takes what fits together out of it and runs it as one batch.

A sample is the same alone and in any batch (its random stream is its own, padding is never attended to), so
batching changes how soon an answer comes and never what it is.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dimoo.engine.jobs import Cancelled, Closed, Job, QueueFull, Sample
from dimoo.pipeline import DiMOOPipeline
from dimoo.seeds import Start, seeds_for
from dimoo.settings import Settings
from dimoo.tasks import Task

TENSORS = ("ids", "lengths", "rows", "confidence", "write")


@dataclass(frozen=True)
class Limits:
    """How much the engine takes on.

    queue: samples that may wait. batch: samples of one batch, each try of a search counted. linger: seconds to wait for
    company before a batch that is not full; clients that were just answered come back within it.
    """

    queue: int = 256
    batch: int = 16
    linger: float = 0.005

    def __post_init__(self):
        if self.queue < 1 or self.batch < 1 or self.linger < 0:
            raise ValueError(f"queue and batch must be at least 1 and linger 0 or more, got {self}")


@dataclass(frozen=True)
class Report:
    """What one batch came to, for whoever counts."""

    kind: str
    samples: int
    seconds: float
    forwards: int
    failed: bool
    stopped: bool = False
    """Nobody waited for it any more: nothing was made."""


class Engine:
    """Answers jobs with one pipeline, one batch at a time.

    Args:
        pipeline: it belongs to the engine from now on.
    """

    def __init__(self, pipeline: DiMOOPipeline, limits: Limits = Limits()):
        self.pipeline, self.limits = pipeline, limits
        self.observers: list[Callable[[Report], None]] = []
        """Called with a `Report` after each batch."""
        self._queue: deque[Sample] = deque()
        self._running: list[Sample] = []
        self._change = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._work, name="dimoo-engine", daemon=True)
        self._thread.start()

    def submit(
        self, tasks: Sequence[Task], settings: Settings | None = None, *, seed: int | Sequence[Start] | None = None,
        index: int = 0, watched: bool = False, traced: bool = False, wait: bool = False,
    ) -> Job:  # fmt: skip
        """Queue one request; its samples have the random streams (seed, index), (seed, index + 1), ...

        Args:
            settings: None or fields that are None mean the checkpoint's defaults.
            watched: keep the latest canvas, for previews. traced: keep those of all steps, of a watched job.
            wait: wait for room in the queue instead of raising QueueFull.

        Raises:
            QueueFull, Closed: nothing was queued. ValueError: the request cannot be.
        """
        if not tasks:
            raise ValueError("nothing is asked for: give at least one task")
        filled = (settings or Settings()).filled(self.pipeline.defaults, tasks[0].kind)
        job = Job(filled, watched, traced)
        starts = seeds_for(len(tasks), seed, index)
        job.samples = [Sample(job, task, start) for task, start in zip(tasks, starts, strict=True)]
        with self._change:
            while wait and self._open and not self._room(tasks):
                self._change.wait()
            if not self._open:
                raise Closed("shutting down: no new work is taken")
            if not self._room(tasks):
                raise QueueFull(f"{len(self._queue)} samples are waiting, the limit is {self.limits.queue}")
            self._queue.extend(job.samples)
            self._change.notify_all()
        return job

    def _room(self, tasks: Sequence[Task]) -> bool:
        """An empty queue takes a job of any size: otherwise one larger than the queue would never run."""
        return not self._queue or len(self._queue) + len(tasks) <= self.limits.queue

    @property
    def waiting(self) -> int:
        """Samples in the queue."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Samples in the batch that is being computed."""
        return len(self._running)

    @property
    def alive(self) -> bool:
        return self._open and self._thread.is_alive()

    def drain(self, seconds: float | None = None) -> None:
        """Take no more work, finish what there is. What is not done after `seconds` ends with Closed, not silently."""
        with self._change:
            self._open = False
            self._change.notify_all()
        if seconds is not None:
            timer = threading.Timer(seconds, self.give_up)
            timer.daemon = True
            timer.start()

    def give_up(self) -> None:
        """End every job that is not done with Closed."""
        with self._change:
            left = [*self._queue, *self._running]
            self._queue.clear()
            self._change.notify_all()
        for sample in left:
            sample.job.fail(Closed("the server is shutting down; ask again later"))

    def close(self, seconds: float | None = None) -> None:
        """`drain`, and wait until the worker has stopped."""
        self.drain(seconds)
        self._thread.join()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error) -> None:
        self.close(0 if any(error) else None)

    # Inside: all of this runs in the worker's thread.

    def _work(self) -> None:
        while batch := self._next_batch():
            self._answer(batch)
            with self._change:
                self._running = []

    def _next_batch(self) -> list[Sample]:
        """Wait for work; the oldest sample and those behind it that can share its batch. Empty: closed and done."""
        with self._change:
            while True:
                self._forget_ended()
                if not self._queue:
                    if not self._open:
                        return []
                    self._change.wait()
                elif len(self._queue) < self.limits.batch and self._open and self._change.wait(self.limits.linger):
                    continue                        # somebody came; perhaps more are coming
                else:
                    break
            first = self._queue[0]
            most = max(1, self.limits.batch // (first.job.settings.best_of or 1))
            together = [one for one in self._queue if _fits(one, first)][:most]
            taken = set(together)
            self._queue = deque(one for one in self._queue if one not in taken)
            self._running = together
            self._change.notify_all()
            return together

    def _forget_ended(self) -> None:
        self._queue = deque(one for one in self._queue if not one.job.over)

    def _answer(self, batch: list[Sample]) -> None:
        """Run a batch. When it fails each sample is tried alone: a bad neighbour, or a batch too large for memory."""
        began = time.perf_counter()
        for sample in batch:
            sample.job.began = sample.job.began or began
        try:
            made = self._run(batch)
        except Exception as error:
            self._report(batch, began, 0, failed=True)
            if len(batch) == 1:
                batch[0].job.fail(error)
            else:
                for sample in batch:
                    if not sample.job.over:
                        self._answer([sample])
            return
        self._report(batch, began, made.forwards, stopped=made.interrupted)
        if made.interrupted:
            for sample in batch:
                sample.job.fail(Cancelled("stopped"))
            return
        answers = made.images if made.texts is None else made.texts
        for sample, answer in zip(batch, answers, strict=True):
            sample.job.sample_done(sample, answer, made.forwards)

    def _run(self, batch: list[Sample]):
        def on_step(pipeline: DiMOOPipeline, step: int, _, tensors) -> None:
            tries = len(tensors["ids"]) // len(batch)       # of a search, the best so far first
            for row, sample in enumerate(batch):
                sample.see(step, tensors, row * tries)
            pipeline.interrupt = all(sample.job.over for sample in batch)

        return self.pipeline.run(
            [sample.task for sample in batch], seed=[sample.start for sample in batch],
            callback_on_step_end=on_step, callback_on_step_end_tensor_inputs=TENSORS, **vars(batch[0].job.settings),
        )  # fmt: skip

    def _report(self, batch: list[Sample], began: float, forwards: int, failed=False, stopped=False) -> None:
        report = Report(batch[0].task.kind, len(batch), time.perf_counter() - began, forwards, failed, stopped)
        for observe in self.observers:
            observe(report)


def _fits(one: Sample, first: Sample) -> bool:
    """Whether two samples may share a batch: one kind of task, one way to sample."""
    return one.task.kind == first.task.kind and one.job.settings == first.job.settings
