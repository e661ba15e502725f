"""Iteration smoothing: an undecided position shows the network what it leaned to in the step before.

The embedding of a mask becomes E[mask] + w softmax(logits) E (dInfer, Ma et al. 2025). The weight w rises with the
steps of a window; the released code counts over the whole answer, so its later blocks start at full weight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from dimoo.cache.none import NoCache
from dimoo.canvas import Sequences


@dataclass(frozen=True)
class Smoothing:
    """Wraps a cache policy, since it stands at the same place: between the loop and the network.

    Args:
        cache: the policy inside. start, rise, most: w = min(start + rise * step, most).
    """

    cache: Any = field(default_factory=NoCache)
    start: float = 0.15
    rise: float = 0.02
    most: float = 0.3

    def __post_init__(self):
        if not 0 <= self.start <= self.most or self.rise < 0:
            given = f"{self.start}, {self.most} and {self.rise}"
            raise ValueError(f"smoothing needs 0 <= start <= most and rise >= 0, got {given}")

    def open(self, steps: int) -> SmoothingSession:
        return SmoothingSession(self, self.cache.open(steps))


@dataclass
class SmoothingSession:
    """The memory of one window: what masked positions leaned to, (nB, L, D)."""

    settings: Smoothing
    inner: Any
    lean: Tensor | None = None
    passes: int = 0

    def logits(self, denoiser, sequences: Sequences, rows: Tensor, columns: slice, step: int) -> Tensor:
        """Logits (nB, M, K) of the answer positions `rows` (B, M) in every branch."""
        s = self.settings
        if self.lean is not None and len(self.lean) == len(sequences.ids):      # the branches are the same ones
            weight = min(s.start + s.rise * self.passes, s.most)
            sequences.soft = weight * self.lean * sequences.masked[..., None]
        logits = self.inner.logits(denoiser, sequences, rows, columns, step)
        self.passes, sequences.soft = self.passes + 1, None
        share = logits.float().softmax(-1)
        mask = sequences.vocab.mask
        if columns.start <= mask < columns.stop:                                # it leans to words, not to itself
            share[..., mask - columns.start] = 0
        self.lean = sequences.spread(rows, denoiser.embed(share, columns))      # (nB, L, D)
        return logits


SMOOTHINGS: dict[str, type] = {"soft": Smoothing}
