"""Sequences of unlike lengths without computing their padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from dimoo import ops

MOST = 32
"""Sequences up to which attention goes one after the other; beyond, one masked call is the faster one."""


@dataclass(frozen=True)
class Packing:
    """Where the real tokens of a right-padded batch lie. Lengths are known on the host, so nothing waits for them.

    Packed tensors hold the N real tokens of all sequences one behind the other, as a batch of one: (1, N, ...).
    """

    lengths: tuple[int, ...]
    width: int
    """L of the padded batch."""
    index: Tensor
    """(N,) place of each token in the flattened batch (B*L)."""
    starts: Tensor
    """(B,) where each sequence begins among the N."""

    @classmethod
    def of(cls, lengths: Sequence[int], width: int, device: torch.device | str = "cpu") -> Packing | None:
        """None where it would not help: all are of the full width, or there are many."""
        if min(lengths) == width or len(lengths) > MOST:
            return None
        return packing(tuple(lengths), width, torch.device(device))

    def pack(self, x: Tensor) -> Tensor:
        """(B, L, ...) -> (1, N, ...)."""
        return x.flatten(0, 1)[self.index][None]

    def unpack(self, x: Tensor) -> Tensor:
        """(1, N, ...) -> (B, L, ...), zero on padding."""
        flat = x.new_zeros(len(self.lengths) * self.width, *x.shape[2:])
        return flat.index_copy_(0, self.index, x[0]).unflatten(0, (-1, self.width))

    def take(self, x: Tensor, rows: Tensor) -> Tensor:
        """Packed x (1, N, ...) at `rows` (B, M) of each sequence -> (B, M, ...)."""
        return x[0][rows + self.starts[:, None]]

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Each sequence attends to its own keys. q, k, v are packed (1, H, N, d), or padded (B, H, L, d)."""
        parts = zip(self._each(q, keys=False), self._each(k), self._each(v), strict=True)
        mixed = [ops.attention(*part, None).transpose(1, 2) for part in parts]  # (1, L, H, d), as it lies in memory
        return torch.cat(mixed, dim=1 if len(q) == 1 else 0).transpose(1, 2)

    def _each(self, x: Tensor, keys: bool = True) -> Sequence[Tensor]:
        if len(x) == 1 and x.shape[2] == sum(self.lengths):                     # packed
            return x.split(self.lengths, dim=2)
        return [one[:, :, :n] if keys else one for one, n in zip(x.split(1), self.lengths, strict=True)]


@lru_cache(maxsize=32)
def packing(lengths: tuple[int, ...], width: int, device: torch.device) -> Packing:
    """Kept, because making it anew would wait for the device."""
    index = torch.cat([torch.arange(n) + row * width for row, n in enumerate(lengths)])
    starts = torch.tensor([0, *accumulate(lengths[:-1])])
    with torch.inference_mode(False):
        return Packing(lengths, width, index.to(device, copy=True), starts.to(device, copy=True))
