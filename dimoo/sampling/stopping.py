"""When is a window, a row, the whole done?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from dimoo.canvas import Canvas


class StoppingCriteria(Protocol):
    def __call__(self, canvas: Canvas) -> bool | Tensor:
        """Mark finished rows in `canvas.done`; True when nothing is left to do. A flag of the device is read late."""
        ...


@dataclass(frozen=True)
class NeverEarly:
    """Run the whole schedule: pictures, whose steps are all needed."""

    def __call__(self, canvas: Canvas) -> bool:
        return False


@dataclass(frozen=True)
class AnswerEnd:
    """A text row is done once it holds an end token with no mask anywhere before it.

    The ends are the checkpoint's own (closing answer token, padding): the released code looks for an id the model
    was not trained to end with, and an end with open masks to its left would cut an answer short. A row that may
    still change what it has written (editing, remasking) is not done.
    """

    def __call__(self, canvas: Canvas) -> Tensor:
        ends = canvas.vocab.is_end(canvas.ids) & canvas.editable
        masks_before = canvas.masked.cumsum(1)
        canvas.done |= (ends & (masks_before == 0)).any(1) & ~canvas.busy
        return (canvas.done | ~(canvas.masked.any(1) | canvas.busy)).all()


@dataclass(frozen=True)
class NoMasks:
    """All is done once no row has a mask left: for rules that may finish before their schedule."""

    def __call__(self, canvas: Canvas) -> Tensor:
        return ~canvas.masked.any()


STOPPING = {"never-early": NeverEarly, "answer-end": AnswerEnd, "no-masks": NoMasks}
