"""Early finish: when everything that is left is sure, commit it at once."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dimoo.canvas import Canvas, Update, Window
from dimoo.sampling.scheduler import Scheduler, Timetable


@dataclass(frozen=True)
class EarlyFinish:
    """Any scheduler, and: a row whose open masks all have candidates of at least this probability commits them all.

    Each row for itself, decided on the device; with `NoMasks` as the stopping criterion the remaining steps are
    saved once every row is full. Ours; the bound plays the part of the threshold in Fast-dLLM (Wu et al. 2025).
    """

    scheduler: Scheduler
    bound: float = 0.9

    def __post_init__(self):
        if not 0 < self.bound <= 1:
            raise ValueError(f"early_finish must lie in (0, 1], got {self.bound}")

    def timetable(self, canvas: Canvas, window: Window) -> Timetable:
        return self.scheduler.timetable(canvas, window)

    def step(self, logits: Tensor, canvas: Canvas, rows: Tensor, valid: Tensor, *rest, **more) -> Update:
        update = self.scheduler.step(logits, canvas, rows, valid, *rest, **more)
        sure = ((update.confidence >= self.bound) | ~valid).all(1, keepdim=True)            # (B, 1)
        update.write = update.write | (valid & sure)
        return update
