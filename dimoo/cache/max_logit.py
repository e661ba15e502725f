"""Max-Logit cache (Lumina-DiMOO): most positions barely move between steps, so only the undecided are recomputed.

Between full passes a position keeps its keys, values and logits. Which positions are recomputed is decided from the
largest image-code logit of each. Differences from the released code: keys are kept after RoPE, only the
code slice of the logits is kept, it works without guidance and in batches, and besides the published rule there is
`changed-first`, which spends its rows on freshly committed tokens first, so their keys are not those of a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dimoo import ops
from dimoo.cache.none import NoCache
from dimoo.cache.store import KVStore
from dimoo.canvas import Sequences


def published(best: Tensor, changed: Tensor, masked: Tensor, share: float) -> Tensor:
    """(L,) -> indices with best <= the `share` quantile over all positions. The count varies with ties."""
    return (best <= torch.quantile(best, share)).nonzero().flatten()


def changed_first(best: Tensor, changed: Tensor, masked: Tensor, share: float) -> Tensor:
    """(L,) -> exactly ceil(share L) indices: changed ids first, then masks by lowest best logit, then the rest."""
    rank = torch.where(masked, best, best.new_tensor(torch.inf)).masked_fill(changed, -torch.inf)
    return rank.argsort(stable=True)[: math.ceil(share * len(best))]


Selection = Callable[[Tensor, Tensor, Tensor, float], Tensor]
SELECTIONS: dict[str, Selection] = {"published": published, "changed-first": changed_first}


@dataclass(frozen=True)
class MaxLogitCache:
    """Settings. Step s is a full pass while s <= steps * warmup and every `refresh` steps after that.

    Args:
        ratio: share of positions not recomputed in a partial pass, in (0, 1).
        warmup: share of steps that are full, in [0, 1].
        refresh: a full pass every so many steps; 1 is no cache at all.
        select: which positions are recomputed, see `SELECTIONS`.
    """

    ratio: float = 0.9
    warmup: float = 0.3
    refresh: int = 5
    select: Selection = changed_first

    def __post_init__(self):
        if not 0 < self.ratio < 1:
            raise ValueError(f"cache ratio must lie in (0, 1), got {self.ratio}")
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"cache warmup must lie in [0, 1], got {self.warmup}")
        if self.refresh < 1:
            raise ValueError(f"cache refresh must be at least 1, got {self.refresh}")

    def open(self, steps: int) -> MaxLogitSession:
        return MaxLogitSession(self, int(steps * self.warmup))


@dataclass
class MaxLogitSession:
    """The memory of one window of one generation."""

    settings: MaxLogitCache
    warm: int
    kv: KVStore = field(default_factory=KVStore)
    stored: Tensor | None = None
    """(nB, L, K) latest logits of every position."""
    ids: Tensor | None = None
    """(nB, L) the ids those keys and values were computed from."""
    recomputed: list[Tensor] = field(default_factory=list)
    """Rows of the last partial pass, one index tensor per sequence; for inspection."""

    def due(self, step: int) -> bool:
        """Whether the settings ask for a full pass."""
        return step <= self.warm or (step - self.warm) % self.settings.refresh == 0

    def is_full(self, step: int, sequences: Sequences) -> bool:
        fitting = self.stored is not None and len(self.stored) >= len(sequences.ids)
        return not fitting or self.due(step)

    def logits(self, denoiser, sequences: Sequences, rows: Tensor, columns: slice, step: int) -> Tensor:
        """Logits (nB, M, K) of the answer positions `rows` (B, M) in every branch, fresh or remembered."""
        if self.due(step) and self.due(step + 1):                               # nothing of it would be read again
            return NoCache().logits(denoiser, sequences, rows, columns, step)
        if self.is_full(step, sequences):
            self.kv = KVStore()
            self.stored = denoiser(sequences.ids, key_mask=sequences.key_mask, kv=self.kv, columns=columns).logits
            self.ids = sequences.ids.clone()
        else:
            self.refresh_some(denoiser, sequences, columns)
        return ops.gather_rows(self.stored[: len(sequences.ids)], sequences.positions(rows))

    def refresh_some(self, denoiser, sequences: Sequences, columns: slice) -> None:
        count = len(sequences.ids)
        rows = self.selected(sequences)                                         # (nB, R)
        fresh = denoiser(
            sequences.ids, key_mask=sequences.key_mask, kv=self.kv.narrow(count), rows=rows, columns=columns
        ).logits                                                                # (nB, R, K)
        ops.scatter_rows(self.stored[:count], rows, fresh)
        self.ids[:count].scatter_(1, rows, sequences.ids.gather(1, rows))

    def selected(self, sequences: Sequences) -> Tensor:
        """(nB, R) rows to recompute; a sequence with fewer of them repeats its first, which changes nothing."""
        share = 1 - self.settings.ratio
        self.recomputed = []
        for index, length in enumerate(sequences.lengths):
            best = self.stored[index, :length].float().amax(-1)
            changed = self.ids[index, :length] != sequences.ids[index, :length]
            masked = sequences.ids[index, :length] == sequences.mask_id
            self.recomputed.append(self.settings.select(best, changed, masked, share))
        width = max(len(rows) for rows in self.recomputed)
        return torch.stack([torch.cat([r, r[:1].expand(width - len(r))]) for r in self.recomputed])
