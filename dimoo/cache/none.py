"""No cache: every row of every sequence is computed at every step. The plain path all others answer to."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dimoo.canvas import Sequences


@dataclass(frozen=True)
class NoCache:
    def open(self, steps: int) -> NoCache:
        return self

    def logits(self, denoiser, sequences: Sequences, rows: Tensor, columns: slice, step: int) -> Tensor:
        """Logits (nB, M, K) of the answer positions `rows` (B, M) in every branch."""
        return denoiser(
            sequences.ids,
            key_mask=sequences.key_mask,
            logit_rows=sequences.positions(rows),
            columns=columns,
            packing=sequences.packing,
            soft=sequences.soft,
        ).logits
