"""Token editing: a written token is replaced in place when the model is sure of another one (LLaDA2.1).

Editing goes on after a window is full until a step changes nothing. Two confident contradictions would swap for ever: a
canvas that comes back to an earlier state is left as it is, and the number of steps after the last mask is capped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dimoo.canvas import Canvas, Window
from dimoo.stream import mix

REACHES = ("window", "answer")


@dataclass(frozen=True)
class TokenEditing:
    """Settings.

    Args:
        threshold: the new token must be more probable than this; 0 edits on any disagreement (LLaDA2.1's fast mode).
        post_steps: most steps after the last mask of a window is filled.
        reach: `window` edits the open window, `answer` also all that was written before (LLaDA2.1's multi-block
            editing); the latter asks for logits of the whole answer at every step.
    """

    threshold: float = 0.5
    post_steps: int = 16
    reach: str = "window"

    def __post_init__(self):
        if not 0 <= self.threshold < 1:
            raise ValueError(f"the editing threshold must lie in [0, 1), got {self.threshold}")
        if self.post_steps < 0:
            raise ValueError(f"post_steps must be 0 or more, got {self.post_steps}")
        if self.reach not in REACHES:
            raise ValueError(f"editing reaches {' or '.join(REACHES)}, got {self.reach!r}")

    def widened(self, canvas: Canvas, window: Window) -> Window:
        """The window with all that may be edited while it is open; nothing of rows that have no part in it."""
        if self.reach == "window":
            return window
        there = canvas.editable & window.open.any(1, keepdim=True)
        return replace(window, reach=there, widest=int(canvas.writable.sum(1).max()))

    def open(self, canvas: Canvas, steps: int) -> EditMemory:
        return EditMemory(self, canvas, canvas.ids.new_zeros(len(canvas), steps))


class EditMemory:
    """What editing remembers of one window, for each row."""

    def __init__(self, settings: TokenEditing, canvas: Canvas, seen: Tensor):
        self.settings, self.canvas, self.seen = settings, canvas, seen
        self.after = torch.zeros_like(canvas.done, dtype=torch.long)            # (B,) steps since the row is full
        self.settled = torch.zeros_like(canvas.done)                            # (B,) nothing will change any more

    def __call__(self, ids: Tensor, probability: Tensor, visible: Tensor, rows: Tensor, fill: Tensor, step: int,
                 left: Tensor) -> Tensor:  # fmt: skip
        """What is replaced, (B, M) bool.

        Args:
            ids, probability: (B, M) the token the model wants, as ids of the vocabulary.
            visible: (B, M) bool, written positions. fill: (B, M) bool, masks written in this step.
            left: (B,) masks that stay open.
        """
        current = self.canvas.ids.gather(1, rows)
        wanted = visible & (ids != current) & (probability > self.settings.threshold) & ~self.settled[:, None]
        state = fingerprint(self.canvas.ids.scatter(1, rows, torch.where(wanted | fill, ids, current)))
        repeated = (self.seen == state[:, None]).any(1)
        edit = wanted & ~repeated[:, None]
        self.seen[:, step] = state
        self.after += (left == 0).long()
        still = ~(edit | fill).any(1) | (self.after > self.settings.post_steps)     # the full window is looked at once
        self.settled |= (left == 0) & still
        return edit


def fingerprint(ids: Tensor) -> Tensor:
    """ids (B, T) -> (B,) int64, different for different rows as far as chance allows."""
    return mix(ids + mix(torch.arange(ids.shape[1], device=ids.device))).sum(1)


EDITINGS: dict[str, type] = {"confident": TokenEditing}
