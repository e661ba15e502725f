"""How the queries of one pass meet keys and values: fresh or stored ones, padded or packed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dimoo import ops
from dimoo.cache.store import KVStore
from dimoo.packing import Packing


@dataclass(frozen=True)
class Attend:
    """The same for all layers of a pass; arguments as in `LLaDAForMultiModalGeneration.forward`."""

    batch: int
    length: int
    key_mask: Tensor | None = None
    kv: KVStore | None = None
    rows: Tensor | None = None
    packing: Packing | None = None
    target: Tensor | None = field(init=False, default=None)
    """(N,) where the tokens of this pass lie in the flattened batch (B*L); None: everywhere, in order."""

    def __post_init__(self):
        target = self.packing.index if self.packed else None
        if self.rows is not None:
            first = torch.arange(self.batch, device=self.rows.device)[:, None] * self.length
            target = (self.rows + first).flatten()
        object.__setattr__(self, "target", target)

    @property
    def packed(self) -> bool:
        """Whether hidden states are (1, N, D) instead of (B, R, D)."""
        return self.packing is not None and self.rows is None

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, turn: ops.Turn, turn_q: ops.Turn | None) -> Tensor:
        """q (B, H, R, d), k and v (B, G, R, d) before RoPE -> (B, H, R, d). `turn_q`: of q, where it has fewer rows."""
        if self.kv is None:
            q, k = ops.apply_rope(q, *(turn_q or turn)), ops.apply_rope(k, *turn)
        else:
            keys, values = self.kv.layer(layer, k, self.batch, self.length)     # (B, L, G, d)
            if turn_q is not None:
                q = ops.apply_rope(q, *turn_q)
                ops.rope_into(None, k, v, turn, keys, values, self.target)
            else:
                q = ops.rope_into(q, k, v, turn, keys, values, self.target)
            k, v = keys.transpose(1, 2), values.transpose(1, 2)                 # (B, G, L, d)
        if self.packing is not None:
            return self.packing.attention(q, k, v)
        return ops.attention(q, k, v, self.key_mask)
