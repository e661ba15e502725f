"""The steps of one window: how many each row commits when, what is remembered meanwhile, and when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dimoo import ops
from dimoo.canvas import Canvas, Window
from dimoo.sampling.editing import EditMemory
from dimoo.sampling.processors import Process


@dataclass
class Timetable:
    """A schedule known in advance. Host numbers, so that no step waits for the device."""

    canvas: Canvas
    window: Window
    commits: list[list[int]]
    """commits[row][step]."""
    table: Tensor
    """The same as (B, steps) on the device."""
    processors: Sequence[Process] = ()
    editing: EditMemory | None = None
    then: Tensor | None = None
    """(B, T) probability that each token was written with, where remasking asks for it."""
    looks: bool = False
    """Whether written positions get logits as well as masks."""
    every_step: bool = False
    """Whether steps that commit nothing are run all the same: remasking works there."""

    @property
    def steps(self) -> int:
        return self.table.shape[1]

    @property
    def lasting(self) -> Tensor:
        """(B, 1) how many steps each row's schedule has: as many as it would have alone."""
        return ops.index(tuple(self.window.steps), self.canvas.device)[:, None]

    def left(self, step: int) -> int:
        """Most positions any row has logits for at `step`."""
        return self.window.widest if self.looks else max(sum(row[step:]) for row in self.commits)

    def busy(self, step: int) -> list[bool]:
        """Which rows commit, or may put back, anything."""
        return [any(row[step:]) if self.every_step else row[step] > 0 for row in self.commits]

    def idle(self, step: int) -> bool:
        """No row is busy: the forward would change nothing and is skipped."""
        return not any(self.busy(step))

    def quota(self, step: int) -> Tensor:
        """(B,) what the mask schedule asks for."""
        return self.table[:, step]

    def planned(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Shares of the window written before and after `step`, (B, 1), and the masks left after it, (B,)."""
        done = self.table.cumsum(1)
        total, after = done[:, -1], done[:, step]
        share = total.clamp_min(1)
        return ((after - self.table[:, step]) / share)[:, None], (after / share)[:, None], total - after


@dataclass
class OpenTimetable(Timetable):
    """Steps until nothing is left to do: for rules that decide themselves how much they take, and for editing.

    The host looks at the device once every `unroll` steps; steps it took in vain change nothing.
    """

    most: int = 0
    """Steps after which it is over in any case."""
    unroll: int = 1
    adaptive: bool = True
    masks: int = field(default=0, init=False)
    """Most masks of any row when last looked at."""
    over: bool = field(default=False, init=False)

    @property
    def steps(self) -> int:
        return self.most

    @property
    def lasting(self) -> Tensor:
        """(B, 1) as many as there are masks, the most a rule that decides itself can need."""
        if not self.adaptive:
            return super().lasting
        return ops.index(tuple(self.window.counts), self.canvas.device)[:, None]

    def idle(self, step: int) -> bool:
        if not self.over and step % self.unroll == 0:
            open = (self.canvas.masked & self.window.open & ~self.canvas.done[:, None]).sum(1)
            settled = torch.ones_like(self.canvas.done) if self.editing is None else self.editing.settled
            unsettled = (~settled & ~self.canvas.done).any()
            self.masks, busy = torch.stack([open.max(), unsettled.to(open.dtype)]).tolist()     # the one wait
            self.over = not (self.masks or busy)
        return self.over

    def busy(self, step: int) -> list[bool]:
        """Only the device knows: all of them."""
        return [True] * len(self.commits)

    def left(self, step: int) -> int:
        return self.window.widest if self.looks else self.masks

    def quota(self, step: int) -> Tensor:
        """A rule that decides itself is asked for one at least, also behind the end of the schedule."""
        asked = self.table[:, step] if step < self.table.shape[1] else self.table.new_zeros(len(self.table))
        return asked.clamp_min(1) if self.adaptive else asked

    def planned(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """As things stand, where nothing is known in advance; one mask fewer than now may be put back."""
        if not self.adaptive and self.table.shape[1]:
            return super().planned(min(step, self.table.shape[1] - 1))
        open = (self.canvas.masked & self.window.open).sum(1)
        filled = (1 - open / ops.index(tuple(self.window.counts), open.device).clamp_min(1))[:, None]
        return filled, filled, (open - 1).clamp_min(0)
