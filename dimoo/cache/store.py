"""Storage of keys and values for one generation. Which rows are refreshed is a policy's business, not ours."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from dimoo.ops import scatter_rows


@dataclass
class KVStore:
    """Keys (after RoPE) and values of every layer, (B, L, G, d) each, for the rows of one batch.

    A full pass replaces a layer's entry; a partial pass writes only its rows. Rows written at their own
    absolute position never need to be rotated again, which is why keys are kept after RoPE.
    """

    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)

    def update(self, layer: int, k: Tensor, v: Tensor, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """k, v (B, G, R, d) of `rows` (B, R), or of all rows when None -> all keys and values (B, G, L, d)."""
        k, v = k.transpose(1, 2), v.transpose(1, 2)                             # (B, R, G, d)
        if rows is None:
            self.keys[layer], self.values[layer] = k, v
        else:
            scatter_rows(self.keys[layer], rows, k)
            scatter_rows(self.values[layer], rows, v)
        return self.keys[layer].transpose(1, 2), self.values[layer].transpose(1, 2)

    def narrow(self, count: int) -> KVStore:
        """A view on the first `count` batch rows; writes go through to this store."""
        return KVStore({i: k[:count] for i, k in self.keys.items()}, {i: v[:count] for i, v in self.values.items()})

    @property
    def empty(self) -> bool:
        return not self.keys
