"""Caches for text: while a window is decoded, only positions in and around it are recomputed.

A window begins with a full pass, whose keys and values are kept; the passes after it compute a stretch of rows that
replaces its own part of the store. What lies outside is as it was at the last full pass. The stretch is the whole
difference between the three policies. Rows are absolute positions, so any prompt may stand before the answer, an image
too, and positions of different rows of a batch need not agree. Attention is full: nothing here is exact, except with
`refresh=1`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dimoo.cache.none import NoCache
from dimoo.cache.store import KVStore, needs_cache
from dimoo.canvas import Sequences


@dataclass(frozen=True)
class WindowCache:
    """Settings shared by the three.

    Args:
        refresh: a full pass every so many steps of a window besides its first; None: at its start only.
    """

    refresh: int | None = None
    warmup = 0
    """Full passes at the start of the first window."""

    def __post_init__(self):
        if self.refresh is not None and self.refresh < 1:
            raise ValueError(f"cache refresh must be at least 1, got {self.refresh}")

    def stretch(self, sequences: Sequences) -> tuple[Tensor, Tensor]:
        """First and last recomputed position of each sequence, (nB,) each; kept inside the sequences by us."""
        raise NotImplementedError

    def open(self, steps: int) -> WindowSession:
        return WindowSession(self)


@dataclass(frozen=True)
class PrefixCache(WindowCache):
    """The window and all behind it are recomputed, what stands before is kept (Fast-dLLM, Wu et al. 2025)."""

    def stretch(self, sequences: Sequences) -> tuple[Tensor, Tensor]:
        return sequences.first_open, torch.full_like(sequences.first_open, sequences.length - 1)


@dataclass(frozen=True)
class DualCache(WindowCache):
    """Only the window is recomputed; the masks behind it stay as they were (Fast-dLLM's dual cache)."""

    def stretch(self, sequences: Sequences) -> tuple[Tensor, Tensor]:
        return sequences.first_open, sequences.last_open


@dataclass(frozen=True)
class VicinityCache(WindowCache):
    """The window and its neighbourhood, where keys age fastest (dInfer's vicinity refresh, Ma et al. 2025).

    Args:
        before, behind: neighbours recomputed on each side. warmup: full passes before the first partial one.
    """

    before: int = 16
    behind: int = 16
    warmup: int = 4

    def __post_init__(self):
        super().__post_init__()
        for name in ("before", "behind", "warmup"):
            if getattr(self, name) < 0:
                raise ValueError(f"vicinity {name} must be 0 or more, got {getattr(self, name)}")

    def stretch(self, sequences: Sequences) -> tuple[Tensor, Tensor]:
        return sequences.first_open - self.before, sequences.last_open + self.behind


@dataclass
class WindowSession:
    """The memory of one window of one generation."""

    settings: WindowCache
    kv: KVStore = field(default_factory=KVStore)
    held: int = 0
    """Sequences whose keys are kept."""
    taken: int = 0
    """Passes made in this window: steps that are skipped do not count."""
    stretch: Tensor | None = None
    """(n, R) positions that are recomputed, of the n sequences last asked for."""

    def due(self, number: int, first: bool) -> bool:
        """Whether pass `number` of the window is full; `first`: in the first window."""
        warm = self.settings.warmup if first else 0
        refresh = self.settings.refresh
        return number <= warm or (refresh is not None and (number - warm) % refresh == 0)

    def logits(self, denoiser, sequences: Sequences, rows: Tensor, columns: slice, step: int) -> Tensor:
        """Logits (nB, M, K) of the answer positions `rows` (B, M) in every branch."""
        needs_cache(denoiser)
        number, first, count = self.taken, sequences.number == 0, len(sequences.ids)
        self.taken += 1
        asked = sequences.positions(rows)
        given = {"key_mask": sequences.key_mask, "columns": columns, "soft": sequences.soft}
        if self.due(number, first) or self.held < count:
            if self.due(number + 1, first):                                     # its keys would not be read
                return NoCache().logits(denoiser, sequences, rows, columns, step)
            self.kv, self.held = KVStore(), count
            return denoiser(sequences.ids, **given, kv=self.kv, logit_rows=asked).logits
        if self.stretch is None or len(self.stretch) != count:                  # the same in all of a window
            self.stretch = self.rows(sequences)
        rows = self.stretch                                                     # (nB, R)
        within = (asked - rows[:, :1]).clamp(0, rows.shape[1] - 1)              # those not valid may lie outside
        return denoiser(sequences.ids, **given, kv=self.kv.narrow(count), rows=rows, logit_rows=within).logits

    def rows(self, sequences: Sequences) -> Tensor:
        """(nB, R) positions to recompute, ascending; where a sequence has fewer, its last is repeated."""
        first, last = self.settings.stretch(sequences)
        first, last = first.clamp_min(0), torch.minimum(last, sequences.ends - 1)
        width = int((last - first).max()) + 1
        return torch.minimum(first[:, None] + torch.arange(width, device=first.device), last[:, None])
