"""Transfer rules: which of the masked positions are written now.

A rule sees the candidates of a step and says yes or no to each; it never draws a token and never touches the canvas.
Rules with `adaptive = True` decide from the model's certainty how many they take, so the number of forwards is known
only in the end; each takes at least one position of every row that has a mask left. The others follow the schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from dimoo.sampling.tokens import negative_entropy


@dataclass
class Candidates:
    """What a step may write. B rows, M positions of each in canvas order, K tokens of the vocabulary slice.

    rows: (B, M) positions. open: (B, M) bool, True where a mask stands; only these may be taken.
    ids: (B, M) chosen tokens. whole: gives (B, M, K) log-probabilities. probability: (B, M) of the chosen token.
    score: (B, M) the order of preference, larger is better (the confidence with its noise).
    quota: (B,) how many the schedule asks for in this step. step: of the window, counting from 0.
    shuffle: gives (B, M) random numbers that depend on seed, step and position only.
    least: (B,) how many must be taken by a rule that decides itself: one, and one for each position put back.
    """

    rows: Tensor
    open: Tensor
    ids: Tensor
    whole: Callable[[], Tensor]
    probability: Tensor
    score: Tensor
    quota: Tensor
    step: int
    shuffle: Callable[[], Tensor]
    least: Tensor | None = None

    def __post_init__(self):
        if self.least is None:
            self.least = torch.ones_like(self.quota)

    @cached_property
    def log_p(self) -> Tensor:
        """(B, M, K)."""
        return self.whole()

    @cached_property
    def rank(self) -> Tensor:
        """(B, M) 0 for the best open position of a row, 1 for the next; equal scores in canvas order."""
        return ranks(self.score, self.open)

    @cached_property
    def sure(self) -> Tensor:
        """(B, M) probability, -inf at what is not open."""
        return self.probability.float().masked_fill(~self.open, -torch.inf)

    @property
    def best(self) -> Tensor:
        """(B, 1) the largest probability of an open position."""
        return self.sure.amax(1, keepdim=True)


def ranks(score: Tensor, open: Tensor) -> Tensor:
    """(B, M) place of each position when its row is ordered from the best score down; ties in canvas order."""
    return score.masked_fill(~open, -torch.inf).argsort(dim=1, descending=True, stable=True).argsort(dim=1)


class TransferRule(Protocol):
    """`adaptive`: whether it decides itself how many are taken. `uses_quota`: whether the mask schedule matters."""

    adaptive: bool
    uses_quota: bool

    def __call__(self, found: Candidates) -> Tensor:
        """(B, M) bool: what is written. Only open positions count."""
        ...


@dataclass(frozen=True)
class Quota:
    """The best, as many as the mask schedule says (MaskGIT, LLaDA, Lumina-DiMOO)."""

    adaptive = False
    uses_quota = True

    def __call__(self, found: Candidates) -> Tensor:
        return found.rank < found.quota[:, None]


@dataclass(frozen=True)
class Random:
    """Any, as many as the mask schedule says (LLaDA's `remasking="random"`); the order carries no information."""

    adaptive = False
    uses_quota = True

    def __call__(self, found: Candidates) -> Tensor:
        return ranks(found.shuffle(), found.open) < found.quota[:, None]


@dataclass(frozen=True)
class Threshold:
    """Everything at least `threshold` probable, and always the best (Fast-dLLM, Wu et al. 2025; dInfer).

    Args:
        threshold: probability from which on a token is taken; above 1 one token a step.
        falling: the bar starts at 1 and falls by this much a step until it reaches `threshold`; 0: it stands.
            dInfer lowers it by 0.02 together with iteration smoothing.
    """

    threshold: float = 0.9
    falling: float = 0.0
    adaptive = True
    uses_quota = False

    def __post_init__(self):
        if not self.threshold > 0:
            raise ValueError(f"threshold must be more than 0 (above 1: one token a step), got {self.threshold}")
        within("falling", self.falling)

    def __call__(self, found: Candidates) -> Tensor:
        bar = max(1 - self.falling * found.step, self.threshold) if self.falling else self.threshold
        return found.sure >= (found.best - 1e-5).clamp_max(bar)


@dataclass(frozen=True)
class ThresholdOrQuota:
    """Everything more probable than `threshold`; the quota's best where these are fewer (LLaDA2.0, diffusers'
    `BlockRefinementScheduler`). Takes at most as many steps as the schedule has."""

    threshold: float = 0.95
    adaptive = True
    uses_quota = True

    def __post_init__(self):
        if not self.threshold > 0:
            raise ValueError(f"threshold must be more than 0 (above 1: the quota alone), got {self.threshold}")

    def __call__(self, found: Candidates) -> Tensor:
        high = found.sure > self.threshold
        enough = high.sum(1, keepdim=True) >= found.quota[:, None]
        return torch.where(enough, high, found.rank < found.quota[:, None])


@dataclass(frozen=True)
class Factor:
    """The longest run n of the surest with p_n >= 1 - factor / (n + 1), and always the best (Fast-dLLM, thm. 1).

    With factor 1 the product of the marginals has the joint distribution's own maximum.

    Args:
        published: keep the reference's slip, which takes all positions when only the very last one fails.
    """

    factor: float = 1.0
    published: bool = False
    adaptive = True
    uses_quota = False

    def __post_init__(self):
        if not self.factor > 0:
            raise ValueError(f"factor must be more than 0, got {self.factor}")

    def __call__(self, found: Candidates) -> Tensor:
        ordered = found.sure.sort(dim=1, descending=True)
        place = torch.arange(1, ordered.values.shape[1] + 1, device=ordered.values.device)
        fits = (ordered.values >= 1 - self.factor / (place + 1)) | (place == 1)
        run = fits.long().cumprod(1)
        if self.published:
            count = found.open.sum(1, keepdim=True)
            run = run | ((run.sum(1, keepdim=True) == count - 1) & (place == count)).long()
        return torch.zeros_like(found.open).scatter(1, ordered.indices, run.bool()) & found.open


@dataclass(frozen=True)
class Hierarchical:
    """Everything above `high`, and in every run of adjacent masks the best if above `low` (dInfer, Ma et al. 2025).

    Splitting each run in about half keeps commits apart, so a block takes about log2 of its length in forwards.
    Where not even the best reaches `low`, the best alone.
    """

    high: float = 0.9
    low: float = 0.6
    adaptive = True
    uses_quota = False

    def __post_init__(self):
        if not 0 < self.low <= self.high:
            raise ValueError(f"hierarchical needs 0 < low <= high, got low {self.low} and high {self.high}")

    def __call__(self, found: Candidates) -> Tensor:
        pick = run_best(found) & (found.sure > self.low)
        return pick | (found.sure > self.high) | (found.open & (found.rank == 0))


def run_best(found: Candidates) -> Tensor:
    """(B, M) bool: the best position of each run of adjacent masks."""
    neighbour = found.rows[:, 1:] == found.rows[:, :-1] + 1
    joined = neighbour & found.open[:, 1:] & found.open[:, :-1]
    run = torch.nn.functional.pad(~joined, (1, 0), value=True).cumsum(1) - 1    # (B, M) number of each run
    rank = found.rank.masked_fill(~found.open, found.rank.shape[1])
    first = torch.full_like(rank, rank.shape[1]).scatter_reduce(1, run, rank, "amin")
    return found.open & (rank == first.gather(1, run))


@dataclass(frozen=True)
class EntropyBudget:
    """The least uncertain, while the entropies of the others among them add up to at most `budget` nats
    (EB-Sampler, Ben-Hamu et al. 2025): a bound on the dependence that is ignored by writing them together."""

    budget: float = 0.1
    adaptive = True
    uses_quota = False

    def __post_init__(self):
        if not self.budget >= 0:
            raise ValueError(f"an entropy budget is 0 or more nats, got {self.budget}")

    def __call__(self, found: Candidates) -> Tensor:
        entropy = (-negative_entropy(found.log_p.float(), found.ids)).masked_fill(~found.open, torch.inf)
        ordered = entropy.sort(dim=1, stable=True)
        others = ordered.values.cumsum(1) - ordered.values                      # inf - inf: nan, taken by nobody
        others[:, 0] = 0.0
        return torch.zeros_like(found.open).scatter(1, ordered.indices, others <= self.budget) & found.open


def within(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")


RULES: dict[str, type] = {
    "quota": Quota, "random": Random, "threshold": Threshold, "threshold-or-quota": ThresholdOrQuota,
    "factor": Factor, "hierarchical": Hierarchical, "entropy-budget": EntropyBudget,
}  # fmt: skip
