"""Denoisers with known answers, called like the real one: for tests and for reading examples without weights.

Neither needs a cache: `kv` is ignored, and a partial pass gives the rows of the full one.

Shapes: B batch, L sequence, R computed rows, M rows with logits, V vocabulary, K returned columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor

from dimoo import ops
from dimoo.cache.store import KVStore
from dimoo.model.llada import DenoiserOutput
from dimoo.packing import Packing


class ToyDenoiser:
    """The calling convention of `LLaDAForMultiModalGeneration`; a toy says what it thinks in `score`."""

    attention_kind = "full"
    can_cache = True

    def __init__(self, vocab_size: int, device: str = "cpu", dtype: torch.dtype = torch.float32):
        self.config = SimpleNamespace(vocab_size=vocab_size)
        self.device, self.dtype = torch.device(device), dtype

    def score(self, ids: Tensor, key_mask: Tensor | None, rows: Tensor, tokens: Tensor) -> Tensor:
        """ids (B, L), key_mask (B, L), rows (B, M) positions, tokens (K,) ids -> logits (B, M, K)."""
        raise NotImplementedError

    def forward(
        self,
        input_ids: Tensor,
        key_mask: Tensor | None = None,
        kv: KVStore | None = None,
        rows: Tensor | None = None,
        logit_rows: Tensor | None = None,
        columns: slice | None = None,
        packing: Packing | None = None,
        soft: Tensor | None = None,
    ) -> DenoiserOutput:
        """Arguments as in `LLaDAForMultiModalGeneration.forward`; `soft` is ignored, a toy has no embeddings."""
        if rows is None:
            rows = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        if logit_rows is not None:
            rows = ops.gather_rows(rows, logit_rows)
        tokens = torch.arange(self.config.vocab_size, device=input_ids.device)[columns or slice(None)]
        return DenoiserOutput(logits=self.score(input_ids, key_mask, rows, tokens).to(self.dtype))

    __call__ = forward

    def embed(self, shares: Tensor, columns: slice | None = None) -> Tensor:
        return shares[..., :1]


class AnswerDenoiser(ToyDenoiser):
    """Knows the answer: `target[p]` at position p, whatever the input, with probability `certainty[p]`.

    target: ids (L,) or (B, L), -1 for no answer, or {position: id}; a position without an answer, or beyond
        the last one, has equal logits. Batch row b reads target row b modulo B, so guidance branches stacked
        one after the other meet the same answers.
    certainty: (L,) probability of the answer over the whole vocabulary. By default it falls from 0.99 at
        position 0 to 0.5 at the last, so that the most confident mask is always the leftmost.

    Raises:
        ValueError: a target id or a certainty out of range, or lengths that differ.
    """

    def __init__(
        self,
        target: Tensor | Mapping[int, int],
        vocab_size: int,
        certainty: Tensor | None = None,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__(vocab_size, device, dtype)
        self.target = torch.atleast_2d(_as_ids(target)).to(self.device)  # (B, L), -1: no answer
        length = self.target.shape[1]
        certainty = torch.linspace(0.99, 0.5, length) if certainty is None else certainty
        if certainty.shape != (length,) or not bool(((certainty > 0) & (certainty < 1)).all()):
            raise ValueError(f"certainty must be {length} probabilities between 0 and 1, one a position")
        if not bool(((self.target >= -1) & (self.target < vocab_size)).all()):
            raise ValueError(f"a target id is outside the vocabulary of {vocab_size}")
        self.certainty = certainty.to(self.device, torch.float32)

    def score(self, ids: Tensor, key_mask: Tensor | None, rows: Tensor, tokens: Tensor) -> Tensor:
        spare = ids.shape[1] - self.target.shape[1]  # negative: the answer is longer, and is cut
        answers = F.pad(self.target, (0, spare), value=-1)  # (B or fewer, L)
        answers = answers[torch.arange(len(ids), device=ids.device) % len(answers)].gather(1, rows)  # (B, M)
        odds = F.pad(self.certainty.logit() + math.log(self.config.vocab_size - 1), (0, spare))  # (L,)
        return odds[rows].unsqueeze(-1) * (answers.unsqueeze(-1) == tokens)  # (B, M, K)


class HashDenoiser(ToyDenoiser):
    """Pseudo-random logits in [0, 12): a hash of the row's attended ids, their positions, position and token.

    Padding and the other rows of the batch change nothing; any other id changes everything. Only integers
    and plain products are computed, so values are the same to the bit in every batch, for every selection of
    rows and columns, and on every device.
    """

    def __init__(
        self, vocab_size: int, seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float32
    ):
        super().__init__(vocab_size, device, dtype)
        self.seed = _mix(torch.tensor(seed, device=device))

    def score(self, ids: Tensor, key_mask: Tensor | None, rows: Tensor, tokens: Tensor) -> Tensor:
        places = _mix(torch.arange(ids.shape[1], device=ids.device) + self.seed)  # (L,)
        seen = _mix(ids + places)  # (B, L)
        seen = seen if key_mask is None else seen * key_mask
        state = _mix(seen.sum(1, keepdim=True) + places[rows])  # (B, M)
        bits = _mix(state.unsqueeze(-1) + tokens)  # (B, M, K)
        share = (bits & 0xFFFFFF).to(torch.float32) / 2**24  # [0, 1), 24 bits
        return 12 * share.square().square()  # few high ones


def _as_ids(target: Tensor | Mapping[int, int]) -> Tensor:
    if not isinstance(target, Mapping):
        return torch.as_tensor(target).long()
    ids = torch.full((max(target) + 1,), -1)
    ids[list(target)] = torch.tensor(list(target.values()))
    return ids


def _mix(x: Tensor) -> Tensor:
    """Scramble int64: the finaliser of splitmix64 (Steele et al. 2014) with two of its constants."""
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        x = (x ^ (x >> shift)) * factor
    return x ^ (x >> 31)
