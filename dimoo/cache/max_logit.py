"""Max-Logit cache (Lumina-DiMOO): most positions barely move between steps, so only the undecided are recomputed.

Between full passes a position keeps its keys, values and logits. Which positions are recomputed is decided from the
largest image-code logit of each. Differences from the released code: keys are kept after RoPE, only the open
positions keep logits, and of those the code slice alone; it works with any guider, without one, and in batches; and
besides the published rule there is `changed-first`, which spends its rows on freshly committed tokens first, so their
keys are not those of a mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from dimoo.cache.reuse import SourceReuse
from dimoo.cache.session import Session
from dimoo.cache.store import level


class Selection(Protocol):
    """Which positions are recomputed.

    best (n, L): largest logit of each position when it was last computed, +inf where none was asked for; changed,
    masked (n, L) bool; padding is neither. Of a sequence with `lengths[i]` positions about the `share` are chosen.
    Returns (n, R) positions; a sequence with fewer than R of them repeats its first, which changes nothing.
    """

    everywhere: bool
    """Whether `best` is needed of all positions, not only of the open ones: a full pass then costs all logits."""

    def __call__(
        self, best: Tensor, changed: Tensor, masked: Tensor, lengths: list[int], share: float
    ) -> Tensor: ...


class Published:
    """Positions with best <= the `share` quantile over all positions, as released.

    The count varies with ties, so the host waits for it; and what was just committed is sure, hence left stale.
    """

    everywhere = True

    def __call__(self, best: Tensor, changed: Tensor, masked: Tensor, lengths: list[int], share: float) -> Tensor:
        values = [one[:length].float() for one, length in zip(best, lengths, strict=True)]
        chosen = [(one <= torch.quantile(one, share)).nonzero().flatten() for one in values]
        return level(chosen)


class ChangedFirst:
    """Exactly ceil(share L) positions: changed ids first, then masks by lowest best logit, then the rest."""

    everywhere = False

    def __call__(self, best: Tensor, changed: Tensor, masked: Tensor, lengths: list[int], share: float) -> Tensor:
        rank = best.masked_fill(~masked, torch.inf).masked_fill(changed, -torch.inf)        # padding ranks last
        counts = [math.ceil(share * length) for length in lengths]
        rows = rank.argsort(dim=1, stable=True)[:, : max(counts)]
        if min(counts) == max(counts):
            return rows
        return torch.where(within(tuple(counts), rows.device), rows, rows[:, :1])


@lru_cache(maxsize=64)
def within(counts: tuple[int, ...], device: torch.device) -> Tensor:
    """(n, most) bool: the first counts[i] of each row. Kept, because making it anew would wait for the device."""
    with torch.inference_mode(False):
        return (torch.arange(max(counts)) < torch.tensor(counts)[:, None]).to(device)


published, changed_first = Published(), ChangedFirst()
SELECTIONS: dict[str, Selection] = {"published": published, "changed-first": changed_first}


@dataclass(frozen=True)
class MaxLogitCache:
    """Settings. Step s is a full pass while s <= steps * warmup and every `refresh` steps after that.

    Args:
        ratio: share of positions not recomputed in a partial pass, in (0, 1).
        warmup: share of steps that are full, in [0, 1].
        refresh: a full pass every so many steps; 1 is no cache at all.
        select: which positions are recomputed, see `SELECTIONS`.
        drift: a full pass also when the largest logits of the masks recomputed in a partial pass have moved by more
            than this on average, in nats; None: never. Each sequence for itself.
        reuse: what full passes leave out; None: nothing.
        graphs: replay narrow passes as CUDA graphs, on a GPU; nowhere else does it change anything.
    """

    ratio: float = 0.9
    warmup: float = 0.3
    refresh: int = 5
    select: Selection = changed_first
    drift: float | None = None
    reuse: SourceReuse | None = None
    graphs: bool = False

    def __post_init__(self):
        if not 0 < self.ratio < 1:
            raise ValueError(f"cache_ratio must lie in (0, 1), got {self.ratio}")
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"cache_warmup must lie in [0, 1], got {self.warmup}")
        if self.refresh < 1:
            raise ValueError(f"cache_refresh must be at least 1, got {self.refresh}")
        if self.drift is not None and not self.drift > 0:
            raise ValueError(f"cache_drift must be more than 0, got {self.drift}")

    def open(self, steps: int) -> Session:
        return Session(self)
