"""Reuse of what stands before the answer: its keys and values are kept, the answer is computed at every step.

Attention is bidirectional, so what stands before the answer sees the answer, and keeping it is an approximation
(dLLM-Cache, Liu et al. 2025, with an interval for the prompt). For an edit the source picture is half of a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dimoo.cache.session import Session
from dimoo.cache.store import level
from dimoo.canvas import Sequences


@dataclass(frozen=True)
class SourceReuse:
    """Keep the pictures in the condition between full passes, one every `refresh` steps; 1 is no reuse at all."""

    refresh: int = 32

    def __post_init__(self):
        if self.refresh < 1:
            raise ValueError(f"the refresh of reused keys must be at least 1, got {self.refresh}")

    def kept(self, prefix: Tensor, sequences: Sequences) -> Tensor:
        """prefix (P,) ids before the answer -> (P,) bool, what is kept: images with their markers and row ends."""
        opened, closed = prefix == sequences.vocab.boi, prefix == sequences.vocab.eoi
        return opened.cumsum(0) > closed.cumsum(0) - closed.long()

    def rows(self, sequences: Sequences) -> Tensor | None:
        """(nB, R) positions that are computed between full passes, the first repeated where a sequence has fewer;
        None when nothing is kept. On the host."""
        kept = [self.kept(prefix, sequences) for prefix in sequences.prefixes]
        if not any(one.any() for one in kept):
            return None
        rows = []
        for one, length in zip(kept, sequences.lengths, strict=True):
            computed = torch.ones(length, dtype=torch.bool)
            computed[: len(one)] = ~one
            rows.append(computed.nonzero().flatten())
        return level(rows)

    def open(self, steps: int) -> Session:
        from dimoo.cache.max_logit import MaxLogitCache

        return Session(MaxLogitCache(warmup=1.0, reuse=self))


@dataclass(frozen=True)
class PromptReuse(SourceReuse):
    """Keep everything that stands before the answer: words, pictures, earlier turns."""

    def kept(self, prefix: Tensor, sequences: Sequences) -> Tensor:
        return torch.ones(len(prefix), dtype=torch.bool)
