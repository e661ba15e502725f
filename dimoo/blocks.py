"""Block schedules: which part of the canvas is open, in which order, with how many steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from dimoo.canvas import Canvas, Window


class BlockSchedule(Protocol):
    def windows(self, canvas: Canvas) -> Iterator[Window]:
        """Windows in the order they are decoded; together they hold every mask once."""
        ...


@dataclass(frozen=True)
class WholeCanvas:
    """Everything is open from the start: pictures, and fully diffusive text."""

    steps: int = 64

    def __post_init__(self):
        _check_steps(self.steps)

    def windows(self, canvas: Canvas) -> Iterator[Window]:
        yield canvas.window(torch.ones_like(canvas.start), [self.steps] * len(canvas))


@dataclass(frozen=True)
class LeftToRight:
    """Blocks of `block_length` masks, left to right (semi-autoregressive LLaDA); `steps` are shared among them.

    Blocks are counted over the positions that were masked at the start, so fixed text inside costs nothing.
    Each row of a batch shares the steps among its own blocks, as it would alone; the longest wait sets the pace.
    """

    steps: int = 128
    block_length: int = 32

    def __post_init__(self):
        _check_steps(self.steps)
        if self.block_length < 1:
            raise ValueError(f"block_length must be at least 1, got {self.block_length}")

    def windows(self, canvas: Canvas) -> Iterator[Window]:
        block = (canvas.start.cumsum(1) - 1) // self.block_length               # (B, T) number of each mask's block
        counts = (block.amax(1) + 1).tolist()                                   # blocks of each row
        steps = [max(1, self.steps // max(1, count)) for count in counts]
        for number in range(max(counts)):
            window = canvas.window((block == number) & canvas.start, steps)
            if any(window.counts):
                yield window


def _check_steps(steps: int) -> None:
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")


BLOCKS = {"whole": WholeCanvas, "left-to-right": LeftToRight}
