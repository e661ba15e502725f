"""Random numbers that depend on (seed, index, step, position) and on nothing else.

A counter-based generator (the splitmix64 finaliser, Steele et al. 2014) instead of a stateful one: an image draws
the same noise alone or in any batch, on any device, whatever was drawn before, and no row waits for another.
"""

from __future__ import annotations

import torch
from torch import Tensor

GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number
TOKEN, RANK, PUT_BACK = 1, 2, 3
"""Purposes: draws of one purpose are independent of those of another."""


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """The splitmix64 finaliser on int64, a bijection that looks random."""
    x = (x ^ _shift(x, 30)) * -4658895280553007687      # 0xBF58476D1CE4E5B9
    x = (x ^ _shift(x, 27)) * -7723592293110705685      # 0x94D049BB133111EB
    return x ^ _shift(x, 31)


class RandomStream:
    """One stream per row of a batch.

    Args:
        seeds: (seed, index) of every row; image k of a batch has index k. Any Python int is a seed, 0 as well.
    """

    def __init__(self, seeds: list[tuple[int, int]], device: torch.device | str = "cpu"):
        pairs = torch.tensor([(_wrap(seed), _wrap(index)) for seed, index in seeds], dtype=torch.int64)
        self.keys = mix(mix(pairs[:, 0]) + GOLDEN * (pairs[:, 1] + 1)).to(device)          # (B,)

    def at(self, purpose: int, step: int, positions: Tensor) -> Tensor:
        """(B, M) int64 keys of the draws at positions (B, M)."""
        keys = mix(self.keys + _wrap(GOLDEN * (4 * step + purpose)))[:, None]              # (B, 1)
        return mix(keys + GOLDEN * (positions + 1))

    def uniform(self, purpose: int, step: int, positions: Tensor, count: int = 1) -> Tensor:
        """Float32 in (0, 1), both excluded, of shape (B, M, count) for positions (B, M); 23 random bits each."""
        return uniform(self.at(purpose, step, positions), count)


def uniform(keys: Tensor, count: int) -> Tensor:
    """The first `count` draws of each key (...) -> (..., count), float32 in (0, 1)."""
    columns = torch.arange(1, count + 1, device=keys.device)
    bits = _shift(mix(keys[..., None] + GOLDEN * columns), 41)
    return (bits.float() + 0.5) * 2.0**-23              # with one bit more the largest would round to 1


def _wrap(number: int) -> int:
    """Any integer as a signed 64-bit one."""
    return (number + 2**63) % 2**64 - 2**63
