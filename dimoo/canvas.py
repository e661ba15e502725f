"""The state of a generation: which ids stand where, and where we may write.

Shapes: B rows, T answer length (right-padded), M rows of logits asked for in a step.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dimoo.ops import scatter_rows
from dimoo.stream import RandomStream
from dimoo.vocab import Vocab


@dataclass(frozen=True)
class Row:
    """One sample before batching.

    Attributes:
        answer: (T,) ids from the opening to the closing answer token; `vocab.mask` where we may write.
        conditions: branch name -> ids that stand before the answer in that branch.
        columns: the vocabulary slice the masks are filled from.
        grid: (h, w) of an image answer, None for text.
        rewritable: (T,) bool, tokens that stand there already and that token editing may replace; None: none.
    """

    answer: Tensor
    conditions: Mapping[str, Tensor]
    columns: slice
    grid: tuple[int, int] | None = None
    rewritable: Tensor | None = None


@dataclass
class Update:
    """What a scheduler decided: `ids` are written at `rows` where `write` holds. All (B, M).

    `confidence` is the probability of each id. `back` (B, T) bool are positions put back to mask before that, and
    `busy` (B,) bool the rows that may still change what they have written; None: none.
    """

    rows: Tensor
    ids: Tensor
    write: Tensor
    confidence: Tensor
    back: Tensor | None = None
    busy: Tensor | None = None


@dataclass(frozen=True)
class Window:
    """The open part of the canvas: (B, T) bool, and per row the masks in it and how many steps they get.

    widest: most positions of any row that may be written in it, masked or not.
    """

    open: Tensor
    counts: list[int]
    steps: list[int]
    widest: int = 0


class Canvas:
    """A batch of rows. Positions neither masked at the start nor rewritable are fixed and never change."""

    def __init__(self, rows: Sequence[Row], vocab: Vocab, seeds: Sequence[tuple[int, int]], device="cpu"):
        if not rows:
            raise ValueError("a canvas needs at least one row")
        columns = {(row.columns.start, row.columns.stop) for row in rows}
        if len(columns) > 1:
            raise ValueError(f"rows of one canvas share a vocabulary slice, got {sorted(columns)}")
        if len(seeds) != len(rows):
            raise ValueError(f"{len(rows)} rows need {len(rows)} seeds, got {len(seeds)}")
        self.vocab, self.columns = vocab, rows[0].columns
        self.conditions = [row.conditions for row in rows]
        self.grids = [row.grid for row in rows]
        self.lengths = [len(row.answer) for row in rows]
        padded = torch.nn.utils.rnn.pad_sequence([row.answer for row in rows], True, vocab.pad)
        self.start = padded == vocab.mask                                       # (B, T), on the host
        self.ids = padded.to(device)                                            # (B, T)
        self.writable = self.start | _rewritable(rows, self.start)              # (B, T), on the host
        self.editable = self.writable.to(device)                                # (B, T)
        self.done = torch.zeros(len(rows), dtype=torch.bool, device=device)     # (B,)
        self.busy = torch.zeros_like(self.done)                                 # (B,) may change what is written
        self.stream = RandomStream(list(seeds), device)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def device(self) -> torch.device:
        return self.ids.device

    @property
    def masked(self) -> Tensor:
        """(B, T) bool: positions still to be filled."""
        return (self.ids == self.vocab.mask) & self.editable

    def window(self, open: Tensor, steps: list[int]) -> Window:
        """A window over `open` (B, T) bool on the host, counting the masks it started with."""
        widest = int((open & self.writable).sum(1).max())
        return Window(open.to(self.device), (open & self.start).sum(1).tolist(), steps, widest)

    def open_rows(self, window: Window, limit: int) -> tuple[Tensor, Tensor]:
        """The masked positions of a window, in order: rows (B, limit) and valid (B, limit) bool.

        Rows with fewer than `limit` masks are filled up with other positions of theirs, not valid, first those of
        the window that may be rewritten; all entries of a row differ, so scattering is safe.
        """
        masked = self.masked & window.open
        order = 2 - masked.to(torch.uint8) - (self.editable & window.open).to(torch.uint8)
        rows = order.argsort(dim=1, stable=True)[:, :limit]
        return rows, masked.gather(1, rows)

    def apply(self, update: Update) -> None:
        """Write an update; fixed positions and finished rows stay as they are."""
        allowed = self.editable.gather(1, update.rows) & ~self.done[:, None]
        update.write = update.write & allowed
        if update.back is not None:
            self.ids = self.ids.masked_fill(update.back & self.editable & ~self.done[:, None], self.vocab.mask)
        if update.busy is not None:
            self.busy = update.busy
        current = self.ids.gather(1, update.rows)
        self.ids.scatter_(1, update.rows, torch.where(update.write, update.ids, current))

    def replace(self, ids: Tensor) -> None:
        """Take other ids (B, T) where we may write; a position that was filled cannot be opened again."""
        reopened = (ids == self.vocab.mask) & ~self.masked
        self.ids = torch.where(self.editable & ~reopened, ids, self.ids)

    def row(self, index: int) -> Tensor:
        """A copy of the answer ids of one row without padding, on the host."""
        return self.ids[index, : self.lengths[index]].to("cpu", copy=True)


def _rewritable(rows: Sequence[Row], like: Tensor) -> Tensor:
    """(B, T) bool on the host."""
    made = torch.zeros_like(like)
    for index, row in enumerate(rows):
        if row.rewritable is not None:
            made[index, : len(row.answer)] = row.rewritable
    return made


class Sequences:
    """The token sequences of the branches of a guider: each row's condition followed by its answer.

    Rows are branch-major: the first B are branch 0 of every sample, and so on; so the first branches alone are a
    view. `key_mask` is None when no sequence is padded.
    """

    def __init__(self, canvas: Canvas, branches: Sequence[str]):
        self.branches, self.count, self.mask_id = tuple(branches), len(canvas), canvas.vocab.mask
        prefixes = [self._prefix(conditions, name) for name in branches for conditions in canvas.conditions]
        answers = canvas.lengths * len(branches)
        width = max(len(p) for p in prefixes) + max(canvas.lengths)
        starts = torch.tensor([len(p) for p in prefixes])
        ids = torch.full((len(prefixes), width), canvas.vocab.pad)
        for index, prefix in enumerate(prefixes):
            ids[index, : len(prefix)] = prefix
        lengths = starts + torch.tensor(answers)
        self.length = int(lengths.max())
        mask = torch.arange(self.length) < lengths[:, None]
        device = canvas.device
        self._ids, self.starts, self.lengths = ids.to(device), starts.to(device), lengths.tolist()
        self.key_mask = None if bool(mask.all()) else mask.to(device)
        self.where = self.starts[:, None] + torch.arange(max(canvas.lengths), device=device)   # (nB, T)
        self.number, self.first_open, self.last_open = 0, self.starts, self.starts
        self.read(canvas)

    @staticmethod
    def _prefix(conditions: Mapping[str, Tensor], name: str) -> Tensor:
        if name not in conditions:
            raise ValueError(f"this sample has no branch {name!r}; it has: {', '.join(conditions)}")
        return conditions[name]

    @property
    def ids(self) -> Tensor:
        """(nB, L)."""
        return self._ids[:, : self.length]

    def enter(self, window: Window, number: int) -> None:
        """Remember where the open window lies: its number, and per sequence the first and last absolute position."""
        places = torch.arange(window.open.shape[1], device=window.open.device).expand_as(window.open)
        first = places.masked_fill(~window.open, window.open.shape[1] - 1).amin(1)
        last = places.masked_fill(~window.open, 0).amax(1)
        count = len(self.branches)
        self.number = number
        self.first_open, self.last_open = (edge.repeat(count) + self.starts for edge in (first, last))     # (nB,)

    def read(self, canvas: Canvas) -> None:
        """Copy the canvas into every branch. Padding of short answers may spill over the end: it is never read."""
        self._ids.scatter_(1, self.where, canvas.ids.repeat(len(self.branches), 1))

    def positions(self, rows: Tensor) -> Tensor:
        """Answer positions (B, M) -> absolute positions (nB, M) in each sequence.

        Rows that are not valid may lie in the padding behind a short answer; they are kept inside the sequence.
        """
        return (rows.repeat(len(self.branches), 1) + self.starts[:, None]).clamp_max(self.length - 1)

    def spread(self, rows: Tensor, values: Tensor) -> Tensor:
        """values (nB, M, D) at answer positions `rows` (B, M) -> (nB, L, D), zero elsewhere."""
        wide = values.new_zeros(*self._ids.shape, values.shape[-1])
        return scatter_rows(wide, rows.repeat(len(self.branches), 1) + self.starts[:, None], values)[:, : self.length]

    def first(self, branches: int) -> Sequences:
        """A view on the first branches only."""
        view, n = copy.copy(self), branches * self.count
        view.branches, view.lengths = self.branches[:branches], self.lengths[:n]
        view._ids, view.starts, view.where = self._ids[:n], self.starts[:n], self.where[:n]
        view.first_open, view.last_open = self.first_open[:n], self.last_open[:n]
        view.key_mask = None if self.key_mask is None else self.key_mask[:n]
        return view
