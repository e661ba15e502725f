"""The plain path: what the published loop does, as a cache policy that keeps nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dimoo import ops
from dimoo.canvas import Sequences


@dataclass(frozen=True)
class PlainPath:
    """No cache; every branch of every sample alone, one after the other; logits of the whole vocabulary for every
    row; and the dense attention bias, built in each forward, cast in each layer, and never used.

    The arithmetic of the layers is the same as everywhere else, so what differs is only what is asked of them.
    """

    def open(self, steps: int) -> PlainPath:
        return self

    def logits(self, denoiser, sequences: Sequences, rows: Tensor, columns: slice, step: int) -> Tensor:
        """Logits (nB, M, K) of the answer positions `rows` (B, M) in every branch."""
        found = []
        for ids, length, asked in zip(sequences.ids, sequences.lengths, sequences.positions(rows), strict=True):
            dense_bias(length, denoiser)
            everything = denoiser(ids[None, :length]).logits                    # (1, L, V)
            found.append(ops.gather_rows(everything[..., columns], asked[None]))
        return torch.cat(found)


def dense_bias(length: int, denoiser) -> None:
    bias = torch.zeros(1, 1, length, length, device=denoiser.device)
    for _ in range(denoiser.config.n_layers):
        bias.to(denoiser.dtype, copy=True)
