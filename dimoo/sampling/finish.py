"""Early finish: when everything that is left is sure, commit it at once."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dimoo.sampling.rules import Candidates, TransferRule


@dataclass(frozen=True)
class EarlyFinish:
    """Any rule, and: a row whose open masks all have candidates of at least this probability commits them all.

    Each row for itself, decided on the device; with `NoMasks` as the stopping criterion the remaining steps are
    saved once every row is full. Ours; the bound plays the part of the threshold in Fast-dLLM (Wu et al. 2025).
    """

    rule: TransferRule
    bound: float = 0.9

    def __post_init__(self):
        if not 0 < self.bound <= 1:
            raise ValueError(f"early_finish must lie in (0, 1], got {self.bound}")

    @property
    def adaptive(self) -> bool:
        return self.rule.adaptive

    @property
    def uses_quota(self) -> bool:
        return self.rule.uses_quota

    def __call__(self, found: Candidates) -> Tensor:
        sure = ((found.probability >= self.bound) | ~found.open).all(1, keepdim=True)      # (B, 1)
        return self.rule(found) | (found.open & sure)
