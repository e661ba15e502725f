"""What waits for the model: a job is one request, its samples are the rows of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dimoo.seeds import Start
from dimoo.settings import Settings
from dimoo.tasks import Task


class QueueFull(RuntimeError):
    """Too many samples are waiting; nothing was queued."""


class Closed(RuntimeError):
    """The engine takes no more work, or gave this piece up while shutting down."""


class Cancelled(RuntimeError):
    """The job was cancelled by whoever asked for it."""


@dataclass(frozen=True)
class Result:
    """What a job made. `answers` are pictures or texts, one a sample; `forwards` is the largest of a sample."""

    answers: list[Any]
    seeds: list[Start]
    forwards: int
    seconds: float
    """From the start of its first batch to the end of its last; waiting is not in it."""


@dataclass(eq=False)
class Sample:
    """One row: a task on a random stream, and how far it is.

    `ids` (T,) is the latest canvas and `confidence` (T,) the probability each id had when it was written; both are
    None until the first step, and kept only for jobs that are watched. `trace` has every canvas of a traced job.
    """

    job: Job
    task: Task
    start: Start
    step: int = 0
    ids: Tensor | None = None
    confidence: Tensor | None = None
    trace: list[Tensor] = field(default_factory=list)
    _written: Tensor | None = None
    answer: Any = None
    finished: bool = False

    def see(self, step: int, tensors: dict[str, Tensor], row: int) -> None:
        """Take row `row` of what a pipeline's callback was given."""
        self.step = step + 1
        if not self.job.watched:
            return
        ids, rows, write = (tensors[name][row] for name in ("ids", "rows", "write"))
        length = int(tensors["lengths"][row])               # behind it is the padding of this batch
        before = torch.full(ids.shape, torch.nan, device=ids.device)
        if self._written is not None and len(self._written) == len(ids):
            same = self.ids == ids[:length]                 # not what went back to mask, nor another try's
            before[:length] = self._written[:length].where(same, before[:length])
        chosen = torch.where(write, tensors["confidence"][row].to(before.dtype), before.gather(0, rows))
        self._written = before.scatter(0, rows, chosen)     # a new one: another thread may read the old
        self.confidence, self.ids = self._written[:length], ids[:length]
        if self.job.traced:
            self.trace.append(self.ids)


@dataclass(eq=False)
class Job:
    """One request. `wait` blocks for the result; `watch` yields while it is made; `cancel` takes it back."""

    settings: Settings
    watched: bool = False
    traced: bool = False
    samples: list[Sample] = field(default_factory=list)
    future: Future = field(default_factory=Future)
    began: float | None = None
    forwards: int = 0

    @property
    def kind(self) -> str:
        return self.samples[0].task.kind

    @property
    def total(self) -> int:
        """Steps of all samples together, an upper limit."""
        return self.settings.num_inference_steps * len(self.samples)

    @property
    def step(self) -> int:
        """Steps done, of all samples together."""
        whole = self.settings.num_inference_steps
        return sum(whole if sample.finished else min(sample.step, whole) for sample in self.samples)

    @property
    def cancelled(self) -> bool:
        future = self.future
        return future.cancelled() or (future.done() and isinstance(future.exception(), Cancelled))

    @property
    def over(self) -> bool:
        return self.future.done()

    def cancel(self) -> None:
        """Take the job back: waiting samples leave the queue, running ones stop within one step."""
        self.fail(Cancelled("cancelled"))

    def fail(self, error: BaseException) -> None:
        """End with an error, unless it has ended."""
        with suppress(InvalidStateError):       # somebody else ended it first
            self.future.set_exception(error)

    def sample_done(self, sample: Sample, answer: Any, forwards: int) -> None:
        """One sample is ready; the last one ends the job."""
        sample.answer, sample.finished = answer, True
        self.forwards = max(self.forwards, forwards)
        if all(one.finished for one in self.samples):
            seconds = time.perf_counter() - self.began
            answers, starts = ([getattr(one, name) for one in self.samples] for name in ("answer", "start"))
            result = Result(answers, starts, self.forwards, seconds)
            with suppress(InvalidStateError):
                self.future.set_result(result)

    def wait(self, timeout: float | None = None) -> Result:
        """Raises what went wrong: Cancelled, Closed, or the pipeline's own error."""
        return self.future.result(timeout)

    def watch(self, every: float = 0.1) -> Iterator[Job]:
        """Yield itself whenever it got further, at most each `every` seconds, until it is over."""
        self.watched, seen = True, -1
        while not self.over:
            if self.step != seen:
                seen = self.step
                yield self
            time.sleep(every)
