"""Choosing a token at each open row, and saying how sure the model is of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Truncation:
    """Which tokens may be drawn at all. None: no limit. Confidence is always taken from the whole distribution.

    top_k keeps the k best; top_p the smallest set of at least that probability; min_p what reaches that share of
    the best probability.
    """

    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self):
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name} must lie in (0, 1], got {value}")

    def __call__(self, logits: Tensor) -> Tensor:
        """(..., K) -> (..., K) with -inf at what may not be drawn."""
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            floor = logits.topk(self.top_k, dim=-1).values[..., -1:]
            logits = logits.masked_fill(logits < floor, -torch.inf)
        if self.top_p is not None and self.top_p < 1:
            ordered = logits.sort(dim=-1, descending=True)
            mass = ordered.values.softmax(-1)
            beyond = mass.cumsum(-1) - mass >= self.top_p
            logits = logits.masked_fill(torch.empty_like(beyond).scatter_(-1, ordered.indices, beyond), -torch.inf)
        if self.min_p is not None:
            best = logits.amax(-1, keepdim=True)
            logits = logits.masked_fill(logits < best + math.log(self.min_p), -torch.inf)
        return logits


def log_probability(log_p: Tensor, ids: Tensor) -> Tensor:
    """log p of the chosen token."""
    return log_p.gather(-1, ids[..., None]).squeeze(-1)


def margin(log_p: Tensor, ids: Tensor) -> Tensor:
    """Log of the gap between the two best probabilities (Kim et al. 2025)."""
    best, second = log_p.topk(2, dim=-1).values.exp().unbind(-1)
    return (best - second).clamp_min(1e-30).log()


def negative_entropy(log_p: Tensor, ids: Tensor) -> Tensor:
    """-H(p) in nats."""
    return (log_p.exp() * log_p.clamp_min(-1e4)).sum(-1)


Confidence = Callable[[Tensor, Tensor], Tensor]

CONFIDENCES: dict[str, Confidence] = {
    "probability": log_probability, "margin": margin, "entropy": negative_entropy,
}  # fmt: skip
"""Scores of chosen tokens: log-probabilities (..., K) and ids (...) -> (...), larger is surer."""
