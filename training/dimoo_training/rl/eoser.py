"""End-token early rejection for text rollouts (EOSER, Yang et al. 2025, section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dimoo.canvas import Canvas, Update
from dimoo.sampling import Scheduler

Damping = Callable[[float], float]


@dataclass(frozen=True)
class EarlyRejection:
    """A scheduler under which end tokens look less sure at first: their confidence is multiplied by gamma.

    gamma rises from `start` to 1 linearly, or in powers of two with ascending step sizes (`geometric`).
    Only the order of commits changes; tokens are drawn as before. Confidence must be a log-probability.
    """

    scheduler: Scheduler
    start: float = 0.4
    geometric: bool = False

    @property
    def temperature(self) -> float:
        return self.scheduler.temperature

    def gamma(self, progress: float) -> float:
        """Over progress in [0, 1]."""
        if self.geometric:
            return self.start ** (1 - progress)
        return self.start + (1 - self.start) * progress

    def timetable(self, canvas: Canvas, window):
        return self.scheduler.timetable(canvas, window)

    def step(
        self, logits: Tensor, canvas: Canvas, rows: Tensor, valid: Tensor, timetable, step: int, draw: int
    ) -> Update:
        """`Scheduler.step`."""
        ends = torch.tensor(canvas.vocab.ends, device=logits.device) - canvas.columns.start
        damped = math.log(self.gamma(step / max(1, timetable.steps - 1)))
        plain = self.scheduler.confidence

        def confidence(log_p: Tensor, ids: Tensor) -> Tensor:
            return plain(log_p, ids) + damped * torch.isin(ids, ends)

        chosen = replace(self.scheduler, confidence=confidence)
        return chosen.step(logits, canvas, rows, valid, timetable, step, draw)
