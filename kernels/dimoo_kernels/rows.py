"""Gather and scatter of rows with integer indices. Twins: `dimoo.ops.gather_rows`, `dimoo.ops.scatter_rows`."""

from __future__ import annotations

from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from dimoo_kernels.launch import launch

BLOCK = 1024


@triton.jit
def kernel(short, long, rows, R, L, width, GATHER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    place = (row // R) * L + tl.load(rows + row)
    if GATHER:
        tl.store(short + row * width + at, tl.load(long + place * width + at, mask=inside), mask=inside)
    else:
        tl.store(long + place * width + at, tl.load(short + row * width + at, mask=inside), mask=inside)


def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x (B, L, ...), rows (B, R) -> (B, R, ...)."""
    out = torch.empty(*rows.shape, *x.shape[2:], dtype=x.dtype, device=x.device)
    _move("gather_rows", out, x.contiguous(), rows, gather=True)
    return out


def scatter_rows(target: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Write values (B, R, ...) into a contiguous target (B, L, ...) at rows (B, R), in place."""
    if not target.is_contiguous():
        raise ValueError(f"rows are scattered into contiguous memory, got strides {target.stride()}")
    _move("scatter_rows", values.to(target.dtype).contiguous(), target, rows, gather=False)
    return target


def _move(name: str, short: Tensor, long: Tensor, rows: Tensor, gather: bool) -> None:
    width = prod(short.shape[2:])
    grid = (rows.numel(), triton.cdiv(width, BLOCK))
    given = (short, long, rows.contiguous(), rows.shape[1], long.shape[1], width)
    launch(name, kernel, grid, rows.device, *given, GATHER=gather, BLOCK=BLOCK)
