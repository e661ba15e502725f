"""Storage of keys and values for one generation. Which rows are refreshed is a policy's business, not ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dimoo import ops


def on(x: Tensor, members: Sequence[int]) -> Tensor:
    """`members` as an index into the batch of x."""
    return ops.index(tuple(members), x.device)


def needs_cache(denoiser) -> None:
    """Raises ValueError for a denoiser whose keys and values cannot be kept, which it says with `can_cache`."""
    if not getattr(denoiser, "can_cache", True):
        raise ValueError(f"{type(denoiser).__name__} computes all positions or none; allowed cache: none")


def level(rows: Sequence[Tensor]) -> Tensor:
    """Positions of each sequence -> (n, R); where a sequence has fewer, its first is repeated."""
    width = max(map(len, rows))
    return torch.stack([torch.cat([one, one[:1].expand(width - len(one))]) for one in rows])


@dataclass
class KVStore:
    """Keys (after RoPE) and values of every layer, (B, L, G, d) each, for the rows of one batch.

    Memory is taken by the first pass and written in place from then on, so that its address stays. Rows are written
    at their own absolute position and never need to be rotated again, which is why keys are kept after RoPE.
    """

    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    whole: tuple[KVStore, int] | None = None
    """Of a view: the store it looks at, and that one's batch rows."""

    def layer(self, index: int, like: Tensor, batch: int, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values (B, L, G, d) of a layer; `like` (B, G, R, d) tells heads, dtype and device of new ones."""
        if index not in self.keys and self.whole is not None:
            keys, values = self.whole[0].layer(index, like, self.whole[1], length)
            self.keys[index], self.values[index] = keys[:batch], values[:batch]
        if index not in self.keys:
            shape = (batch, length, like.shape[1], like.shape[3])
            self.keys[index], self.values[index] = like.new_zeros(shape), like.new_zeros(shape)
        return self.keys[index], self.values[index]

    def narrow(self, count: int, total: int | None = None) -> KVStore:
        """A view on the first `count` batch rows, of `total` where none are there yet; writes go through."""
        parts = ({i: x[:count] for i, x in part.items()} for part in (self.keys, self.values))
        return KVStore(*parts, whole=(self, total or count))

    def take(self, members: Sequence[int]) -> KVStore:
        """A copy of some batch rows."""
        return KVStore(*({i: x[on(x, members)] for i, x in part.items()} for part in (self.keys, self.values)))

    def put(self, members: Sequence[int], part: KVStore, batch: int) -> None:
        """Write the rows of `part` back; `batch` rows are made where there are none."""
        for ours, theirs in ((self.keys, part.keys), (self.values, part.values)):
            for index, value in theirs.items():
                if index not in ours:
                    ours[index] = value.new_zeros(batch, *value.shape[1:])
                ours[index][on(value, members)] = value

    @property
    def empty(self) -> bool:
        return not self.keys
