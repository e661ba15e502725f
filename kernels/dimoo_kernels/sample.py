"""Guided sampling in one pass over the columns: combine branches, draw by Gumbel-max, log-probability of the draw.

Neither guided logits nor probabilities nor noise are written. Twin: `dimoo.ops.guided_sample`; the noise is the
counter-based one of `dimoo.stream`, computed where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from dimoo_kernels.launch import launch, power_of_two

BLOCK = 1024
GOLDEN = tl.constexpr(-7046029254386353131)
FIRST, SECOND = tl.constexpr(-4658895280553007687), tl.constexpr(-7723592293110705685)


@triton.jit
def mixed(x):
    """The splitmix64 finaliser on int64, whose right shifts are logical: see `dimoo.stream.mix`."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * FIRST
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * SECOND
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit
def kernel(
    logits, weights, keys, ids, log_p, branch, row_stride, width, forbidden, heat,
    BRANCHES: tl.constexpr, NOISE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    key = tl.load(keys + row)
    top, total = float("-inf"), 0.0                                 # running maximum and sum of exp(z - top)
    best, chosen, z_chosen = float("-inf"), 0, 0.0                  # running draw
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (column < width) & (column != forbidden)
        z = tl.zeros([BLOCK], dtype=tl.float32)
        for b in tl.static_range(BRANCHES):
            part = tl.load(logits + b * branch + row * row_stride + column, mask=inside, other=0.0)
            z += part.to(tl.float32) * tl.load(weights + b)
        z = tl.where(inside, z, float("-inf"))
        score = z
        if NOISE:
            bits = (mixed(key + GOLDEN * (column.to(tl.int64) + 1)) >> 41) & 0x7FFFFF
            u = (bits.to(tl.float32) + 0.5) * 1.1920928955078125e-07        # 2^-23
            score = z / heat - tl.log(-tl.log(u))
        largest = tl.max(z, axis=0)
        peak = tl.maximum(top, largest)
        safe = tl.where(peak == float("-inf"), 0.0, peak)
        total = total * tl.exp(top - safe) + tl.sum(tl.exp(z - safe), axis=0)
        top = peak
        winner = tl.max(score, axis=0)
        where = tl.min(tl.where(score == winner, column, 2147483647), axis=0)       # the first of equals
        if winner > best:
            best, chosen = winner, where
            z_chosen = tl.sum(tl.where(column == where, z, 0.0), axis=0)
    tl.store(ids + row, chosen.to(tl.int64))
    tl.store(log_p + row, z_chosen - top - tl.log(total))


def guided_sample(
    logits: Tensor, weights: Sequence[float], temperature: float, keys: Tensor, forbidden: int | None
) -> tuple[Tensor, Tensor]:
    """logits (n*B, M, K), n weights, keys (B, M) -> ids (B, M) int64, log-probabilities (B, M) float32."""
    logits, (batch, rows), width = logits.contiguous(), keys.shape, logits.shape[-1]
    ids = torch.empty(batch, rows, dtype=torch.int64, device=logits.device)
    log_p = torch.empty(batch, rows, dtype=torch.float32, device=logits.device)
    scale = weights_on(tuple(weights), logits.device)
    given = (
        logits, scale, keys.contiguous(), ids, log_p, batch * rows * width, width, width,
        -1 if forbidden is None else forbidden, float(temperature) or 1.0,
    )  # fmt: skip
    constants = {"BRANCHES": len(weights), "NOISE": temperature != 0, "BLOCK": min(BLOCK, power_of_two(width))}
    launch("guided_sample", kernel, (batch * rows,), logits.device, *given, **constants)
    return ids, log_p


@lru_cache(maxsize=256)
def weights_on(weights: tuple[float, ...], device: torch.device) -> Tensor:
    """The weights as a tensor; kept, because copying them at every step would wait for the device."""
    with torch.inference_mode(False):
        return torch.tensor(weights, dtype=torch.float32, device=device)
