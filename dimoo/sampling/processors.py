"""Logits processors and score adjustments: what happens between the model's logits and the transfer rule.

A processor may remember; so it is opened once a window and forgotten with it, and what it remembers is kept per
row. Processors run in the order given, after the mask id is ruled out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dimoo.canvas import Canvas
from dimoo.ops import gather_rows, scatter_rows
from dimoo.resolve import resolve
from dimoo.sampling.rules import within

Process = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits (B, M, K), rows (B, M), open (B, M) bool) -> logits (B, M, K)."""


class Processor(Protocol):
    def open(self, canvas: Canvas) -> Process:
        """What processes the logits of one window."""
        ...


@dataclass(frozen=True)
class Credit:
    """Credit decoding: a token that stays on top step after step gains weight (Wang et al. 2025, in dInfer).

    C <- decay C at every step but the first; C[top token] += p(top)^power; logits + weight log(1 + C).

    Args:
        keep: tokens remembered a position; a further one replaces that of the least credit. The published form
            remembers the whole vocabulary, which is the same for up to `keep` different favourites.
    """

    weight: float = 0.7
    decay: float = 0.8
    power: float = 0.2
    keep: int = 16

    def __post_init__(self):
        within("decay", self.decay)
        if self.keep < 1:
            raise ValueError(f"credit must keep at least 1 token a position, got {self.keep}")

    def open(self, canvas: Canvas) -> Process:
        shape = (*canvas.ids.shape, self.keep)
        return CreditMemory(self, canvas.ids.new_zeros(shape, dtype=torch.float32),
                            canvas.ids.new_zeros(shape))  # fmt: skip


@dataclass
class CreditMemory:
    """credit and tokens: (B, T, keep)."""

    settings: Credit
    credit: Tensor
    tokens: Tensor

    def __call__(self, logits: Tensor, rows: Tensor, open: Tensor) -> Tensor:
        s = self.settings
        self.credit *= s.decay                                                  # nothing to decay at the first step
        credit, tokens = gather_rows(self.credit, rows), gather_rows(self.tokens, rows)   # (B, M, keep)
        share, top = logits.float().softmax(-1).max(-1, keepdim=True)           # (B, M, 1)
        known = (tokens == top) & (credit > 0)
        slot = torch.where(known.any(-1), known.float().argmax(-1), credit.argmin(-1))[..., None]
        gained = credit.gather(-1, slot) * known.any(-1, keepdim=True) + share**s.power
        credit = torch.where(open[..., None], credit.scatter(-1, slot, gained), credit)
        tokens = torch.where(open[..., None], tokens.scatter(-1, slot, top), tokens)
        scatter_rows(self.credit, rows, credit)
        scatter_rows(self.tokens, rows, tokens)
        return logits.scatter_add(-1, tokens, (s.weight * torch.log1p(credit)).to(logits.dtype))


@dataclass(frozen=True)
class RepetitionPenalty:
    """Positive logits of tokens that stand in the answer already are divided by `penalty`, negative ones
    multiplied (CTRL, Keskar et al. 2019). Masks, and tokens that are given and not written, do not count."""

    penalty: float = 1.2

    def __post_init__(self):
        if not self.penalty >= 1:
            raise ValueError(f"a repetition penalty is 1 (none) or more, got {self.penalty}")

    def open(self, canvas: Canvas) -> Process:
        def process(logits: Tensor, rows: Tensor, open: Tensor) -> Tensor:
            start, width = canvas.columns.start, logits.shape[-1]
            tokens = canvas.ids - start                                         # (B, T), width: none
            counts = canvas.editable & ~canvas.masked & (tokens >= 0) & (tokens < width)
            tokens = torch.where(counts, tokens, width)
            seen = logits.new_zeros(len(logits), width + 1, dtype=torch.bool).scatter(1, tokens, True)[:, None, :-1]
            punished = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
            return torch.where(seen, punished, logits)

        return process


PROCESSORS: dict[str, type] = {"credit": Credit, "repetition-penalty": RepetitionPenalty}


Ramp = Callable[[int, Tensor, Tensor], Tensor]
"""(step, steps of each row (B, 1), share of the window's masks that is filled (B, 1)) -> (B, 1) in [0, 1]."""


def by_step(step: int, steps: Tensor, filled: Tensor) -> Tensor:
    """0 at the first step, 1 at the last."""
    return step / (steps - 1).clamp_min(1)


def by_doubling(step: int, steps: Tensor, filled: Tensor) -> Tensor:
    """(2^(s+1) - 1) / 2^S: the share written after a step of doubling commits; for `powers-of-two`."""
    return (2.0 ** (step + 1) - 1) / 2.0 ** steps.double()


def by_share(step: int, steps: Tensor, filled: Tensor) -> Tensor:
    """The share that is filled: for rules whose number of steps is not known."""
    return filled


RAMPS: dict[str, Ramp] = {"step": by_step, "doubling": by_doubling, "share": by_share}


@dataclass(frozen=True)
class EarlyRejection:
    """EOSER (Yang et al. 2025): the confidence of an end token is multiplied by a factor that rises from `low` to
    `high`, so an answer is not ended before its words had their chance. The token drawn stays the same.

    Unlike the released code the ramp runs over the window's own steps, so it reaches `high` in every block.

    Args:
        ramp: how it rises, see `RAMPS`; published: `step` with low 0.4, `doubling` with low 0.01.
    """

    low: float = 0.4
    high: float = 1.0
    ramp: Ramp | str = "step"

    def __post_init__(self):
        if not 0 < self.low <= self.high <= 1:
            raise ValueError(f"early rejection needs 0 < low <= high <= 1, got low {self.low} and high {self.high}")
        resolve(self.ramp, RAMPS, "ramp")

    def __call__(self, score: Tensor, probability: Tensor, is_end: Tensor, progress: tuple) -> tuple[Tensor, Tensor]:
        """score, probability, is_end (B, M); progress: what a `Ramp` takes -> damped score and probability.

        The score is a logarithm, so the factor is added to it as one.
        """
        rise = resolve(self.ramp, RAMPS, "ramp")(*progress).float().clamp(0, 1)
        factor = torch.where(is_end, self.low + (self.high - self.low) * rise, 1.0)
        return score + factor.log(), probability * factor


REJECTIONS: dict[str, type] = {"eoser": EarlyRejection}
