"""The sampling loop: one for pictures and text, with or without guidance and cache. It knows only the seven slots.

    canvas -> [guider -> denoiser (through the cache)] -> scheduler -> canvas, window by window, until it is full
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from dimoo.blocks import BlockSchedule, WholeCanvas
from dimoo.cache import CachePolicy, NoCache
from dimoo.canvas import Canvas, Sequences, Update
from dimoo.guidance import Guider, NoGuidance, active
from dimoo.late import Late
from dimoo.sampling.scheduler import Scheduler
from dimoo.sampling.stopping import NeverEarly, StoppingCriteria


@dataclass
class Step:
    """What `on_step` sees after each step; it may return True to stop the generation."""

    canvas: Canvas
    update: Update
    number: int
    """Step of its window, counting from 0."""
    tick: int
    """Steps since the start of the generation, counting from 0."""
    forwards: int
    """Sequences sent through the network so far, divided by the rows of the canvas."""


OnStep = Callable[[Step], bool | None]

WINDOW = 2**20
"""Noise is numbered by window and step, not by the steps taken: a row alone skips some that a batch does not."""


@torch.inference_mode()
def denoise(
    canvas: Canvas,
    denoiser,
    *,
    scheduler: Scheduler,
    guider: Guider = NoGuidance(),  # noqa: B008  (frozen)
    blocks: BlockSchedule = WholeCanvas(),  # noqa: B008
    cache: CachePolicy = NoCache(),  # noqa: B008
    stop: StoppingCriteria = NeverEarly(),  # noqa: B008
    on_step: OnStep | None = None,
) -> int:
    """Fill the masks of `canvas` in place; returns the number of forwards (NFE) per row.

    Args:
        denoiser: called as in `dimoo.model.llada`, returns an object with `.logits`.
    """
    sequences = Sequences(canvas, guider.branches)
    tick, forwards, ended = 0, 0, Late()
    for number, window in enumerate(blocks.windows(canvas)):                    # which part is open
        timetable = scheduler.timetable(canvas, window)                         # how many are committed when
        memory = cache.open(timetable.steps)
        sequences.enter(window, number)
        for step in range(timetable.steps):
            if timetable.idle(step):
                continue
            rows, valid = canvas.open_rows(timetable.window, timetable.left(step))    # (B, M), masks first
            weights = guider.weights(step / timetable.steps)
            branches = active(weights)                                          # those of weight 0 are not computed
            sequences.read(canvas, timetable.busy(step))
            logits = memory.logits(denoiser, sequences.first(branches), rows, canvas.columns, step)
            draw = number * WINDOW + step
            update = scheduler.step(logits, canvas, rows, valid, timetable, step, draw, weights[:branches])
            canvas.apply(update)
            forwards += branches
            if on_step is not None and on_step(Step(canvas, update, step, tick, forwards)):
                return forwards
            tick += 1
            if ended(stop(canvas)):
                return forwards
    return forwards
