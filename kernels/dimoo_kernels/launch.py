"""What all launchers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor
from triton.testing import do_bench

calls: Counter[str] = Counter()
"""Name of a kernel -> launches in this process."""


def launch(name: str, kernel, grid: tuple[int, ...], device: torch.device, *given, **constants) -> None:
    """Count and start a kernel on the device that holds its tensors."""
    calls[name] += 1
    if 0 in grid:
        return
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[grid](*given, **constants)


def power_of_two(count: int) -> int:
    """The next power of two: sizes of Triton blocks."""
    return 1 << max(0, count - 1).bit_length()


def warps(block: int) -> int:
    """Warps for a block of so many elements: one for each 256, 1 to 16."""
    return max(1, min(16, block // 256))


def rows_of(x: Tensor) -> tuple[Tensor, int, int]:
    """(the tensor with its last axis contiguous and all others flattened, rows, width)."""
    width = x.shape[-1]
    flat = x.reshape(-1, width)
    return (flat if flat.stride(1) == 1 else flat.contiguous()), flat.shape[0], width


def device_seconds(function: Callable[[], object], repeats: int) -> float:
    """Median seconds of a call by the GPU's own clock, about so many times, from a cold L2 and without the launch."""
    return do_bench(function, warmup=10, rep=5 * repeats, return_mode="median") / 1e3
