"""Block schedules: which part of the canvas is open, in which order, with how many steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

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
        yield canvas.window(canvas.writable, [self.steps] * len(canvas))


@dataclass(frozen=True)
class LeftToRight:
    """Blocks of `block_length` masks, left to right (semi-autoregressive LLaDA); `steps` are shared among them.

    Blocks are counted over the positions that may be written, so fixed text inside costs nothing.
    Each row of a batch shares the steps among its own blocks, as it would alone, the first ones getting what is over;
    the longest wait sets the pace. A block has one step at least.
    """

    steps: int = 128
    block_length: int = 32

    def __post_init__(self):
        _check_steps(self.steps)
        if self.block_length < 1:
            raise ValueError(f"block_length must be at least 1, got {self.block_length}")

    def windows(self, canvas: Canvas) -> Iterator[Window]:
        block = (canvas.writable.cumsum(1) - 1) // self.block_length            # (B, T) number of each mask's block
        counts = (block.amax(1) + 1).tolist()                                   # blocks of each row
        for number in range(max(counts)):
            steps = [shared(self.steps, max(1, count), number) for count in counts]
            window = canvas.window((block == number) & canvas.writable, steps)
            if window.widest:
                yield window

    def check(self, length: int) -> None:
        """An answer longer than a block divides into whole blocks (LLaDA); a shorter one is a block of its own."""
        if length <= self.block_length or length % self.block_length == 0:
            return
        below = length // self.block_length * self.block_length
        fitting = ", ".join(str(size) for size in range(1, length + 1) if length % size == 0)
        raise ValueError(
            f"an answer of {length} tokens does not divide into blocks of {self.block_length}; allowed: lengths up to "
            f"{self.block_length} and its multiples, such as {below} and {below + self.block_length}, "
            f"or block lengths {fitting}"
        )


@dataclass(frozen=True)
class PowersOfTwo:
    """Left-to-right windows of doubling size, each written in one step: ASS over several blocks (Yang et al. 2025).

    The first window holds the small powers 1, 2, ... 2^(k-1) and gets k steps; the next ones hold 2^k, 2^(k+1), ... and
    get one step each; the last takes the rest. Goes with the quota `powers-of-two`. An answer of G masks takes about
    log2 G steps in all; `steps` below that put more into the last window.

    Args:
        steps: at most this many in all. first: the k of the first window.
    """

    steps: int = 128
    first: int = 4

    def __post_init__(self):
        _check_steps(self.steps)
        if self.first < 1:
            raise ValueError(f"the first window needs at least 1 step, got {self.first}")

    def windows(self, canvas: Canvas) -> Iterator[Window]:
        first = min(self.first, self.steps)
        place = canvas.writable.cumsum(1)                                       # (B, T) counts from 1
        total = place.amax(1, keepdim=True)
        last = (floor_log2(total + 1) - first).clamp(0, self.steps - first)     # a window ends at 2^k - 1
        number = torch.minimum((floor_log2(place) - first + 1).clamp_min(0), last)
        for index in range(int(last.max()) + 1):
            window = canvas.window((number == index) & canvas.writable, [1 if index else first] * len(canvas))
            if window.widest:
                yield window


def shared(steps: int, blocks: int, number: int) -> int:
    """Steps of block `number`: an even split whose remainder goes to the first blocks, one at least."""
    return max(1, steps // blocks + (number < steps % blocks))


def whole_blocks(length: int, block_length: int) -> int:
    """The longest answer of at most `length` tokens that divides into blocks."""
    return length if length < block_length else length // block_length * block_length


def floor_log2(whole: Tensor) -> Tensor:
    """Of integers; 0 for those below 2."""
    return torch.frexp(whole.clamp_min(1).double()).exponent.long() - 1


def _check_steps(steps: int) -> None:
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")


BLOCKS = {"whole": WholeCanvas, "left-to-right": LeftToRight, "powers-of-two": PowersOfTwo}
