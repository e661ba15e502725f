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
        yield canvas.window(torch.ones_like(canvas.start), self.steps)


@dataclass(frozen=True)
class LeftToRight:
    """Blocks of `block_length` masks, left to right (semi-autoregressive LLaDA); `steps` are shared among them.

    Blocks are counted over the positions that were masked at the start, so fixed text inside costs nothing.
    """

    steps: int = 128
    block_length: int = 32

    def __post_init__(self):
        _check_steps(self.steps)
        if self.block_length < 1:
            raise ValueError(f"block_length must be at least 1, got {self.block_length}")

    def windows(self, canvas: Canvas) -> Iterator[Window]:
        block = (canvas.start.cumsum(1) - 1) // self.block_length               # (B, T) number of each mask's block
        count = int(block.max()) + 1
        for number in range(count):
            window = canvas.window((block == number) & canvas.start, max(1, self.steps // count))
            if any(window.counts):
                yield window


def _check_steps(steps: int) -> None:
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")


BLOCKS = {"whole": WholeCanvas, "left-to-right": LeftToRight}
