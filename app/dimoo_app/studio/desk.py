"""What all tabs share: the model behind its engine, the history, and who is running what."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image

from dimoo.cli.session import Session
from dimoo.engine import Cancelled, Closed, Engine, Job, QueueFull, Result, Sample
from dimoo.settings import Settings
from dimoo.tasks import Task
from dimoo_app.studio import figures
from dimoo_app.studio.figures import Figure
from dimoo_app.studio.history import History

EVERY = 0.15
"""Seconds between two pictures of the same drawing."""


class Desk:
    """One studio. A browser has at most one job in each tab; a new one takes the place of the old."""

    def __init__(self, session: Session, engine: Engine, history: History):
        self.session, self.engine, self._history = session, engine, history
        self.jobs: dict[tuple[str, str], Job] = {}

    @property
    def codec(self):
        return self.session.pipeline.codec

    @property
    def defaults(self):
        return self.session.pipeline.defaults

    def history(self, request: gr.Request) -> History:
        return self._history.of(getattr(request, "username", None))

    def start(
        self, request: gr.Request, tab: str, tasks: Sequence[Task], settings: Settings, seed=None, traced=False
    ) -> Job:
        """Queue a job; `traced` keeps every step of it. Raises gr.Error in words."""
        self.stop(request, tab)
        with spoken():
            job = self.engine.submit(tasks, settings, seed=seed, watched=True, traced=traced)
        self.jobs[request.session_hash, tab] = job
        return job

    def stop(self, request: gr.Request, tab: str) -> None:
        if job := self.jobs.pop((request.session_hash, tab), None):
            job.cancel()

    def leave(self, request: gr.Request) -> None:
        """The browser went away."""
        for browser, tab in list(self.jobs):
            if browser == request.session_hash:
                self.stop(request, tab)

    def follow(self, job: Job) -> Iterator[Job]:
        """The job, whenever it got further; what goes wrong leaves as gr.Error. Leaving early takes the job back."""
        try:
            yield job
            yield from job.watch(EVERY)
            with spoken():
                job.wait(0)
        except Cancelled:
            return
        finally:
            job.cancel()

    def result(self, job: Job) -> Result | None:
        """What a job that was followed to its end has made; None when it was stopped."""
        return None if job.cancelled else job.wait(0)

    def keep(self, request: gr.Request, job: Job, stated: dict[str, Any]) -> list[Path]:
        """Save the pictures of a finished job in the history."""
        result, history, kept = job.wait(0), self.history(request), []
        for picture, start in zip(result.answers, result.seeds, strict=True):
            made_of = self.session.record(stated, job.settings, job.kind, start)
            shape = {"height": picture.height, "width": picture.width, "forwards": result.forwards}
            kept.append(history.keep(picture, made_of | shape))
        return kept

    # What a job looks like while it runs.

    def show(self, job: Job, sure: bool = False) -> str:
        """All pictures of a job as they are now, with how far it is; `sure` adds how sure each token was."""
        shown = [figure for sample in job.samples for figure in self.frames(sample, sure)]
        return figures.stage(shown, self.meter(job)) if shown else self.meter(job) + figures.empty(*WAITING)

    def meter(self, job: Job) -> str:
        if job.began is None:
            ahead = max(0, self.engine.waiting + self.engine.running - len(job.samples))
            return figures.meter(0, 1, f"waiting, {ahead} before you" if ahead else "starting")
        gone, step = time.perf_counter() - job.began, job.step
        left = f"{figures.seconds(gone / step * (job.total - step))} left" if step else ""
        return figures.meter(step, job.total, f"step {step} of {job.total}", left)

    def frames(self, sample: Sample, sure: bool) -> list[Figure]:
        ids, confidence = sample.ids, sample.confidence
        if ids is None:
            return []
        shown = [Figure(sample.task.preview(self.codec, ids))]
        if sure and confidence is not None:
            grid = self.codec.vocab.cells(confidence[1:-1], *sample.task.shape(self.codec))
            shown.append(Figure(figures.heat(grid), "how sure each token was"))
        return shown

    def stopped(self, job: Job) -> str:
        """The last look of a job that was stopped."""
        shown = [figure for sample in job.samples for figure in self.frames(sample, False)]
        return figures.stage(shown, figures.done(f"stopped at step {job.step} of {job.total}; nothing was saved"))


WAITING = ("The masks are being laid out", "The first tokens appear in a moment.")


@contextmanager
def spoken() -> Iterator[None]:
    """Errors of the user's, and of a full queue, as Gradio shows them."""
    try:
        yield
    except (ValueError, QueueFull, Closed) as error:
        raise gr.Error(_sentence(str(error)), print_exception=False) from error


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def need(picture: str | Image.Image | None, words: str = "Choose a picture first.") -> None:
    if picture is None:
        raise gr.Error(words, print_exception=False)
