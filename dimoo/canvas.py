"""The state of a generation: which ids stand where, and where we may write.

Shapes: B rows, T answer length (right-padded), M rows of logits asked for in a step.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dimoo import ops
from dimoo.packing import Packing
from dimoo.stream import RandomStream
from dimoo.vocab import Vocab


@dataclass(frozen=True)
class Row:
    """One sample before batching.

    Attributes:
        answer: (T,) ids, from the opening to the closing answer token where the checkpoint has them; `vocab.mask` where
            we may write.
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

    reach: (B, T) bool, where written tokens may be replaced meanwhile; the open part, if nobody asks for more.
    widest: most positions of any row that may be written in reach, masked or not.
    """

    open: Tensor
    counts: list[int]
    steps: list[int]
    reach: Tensor
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
        there = open.to(self.device)
        return Window(there, (open & self.start).sum(1).tolist(), steps, there, widest)

    def open_rows(self, window: Window, limit: int) -> tuple[Tensor, Tensor]:
        """The masked positions of a window, in order: rows (B, limit) and valid (B, limit) bool.

        Rows with fewer than `limit` masks are filled up with other positions of theirs, not valid, first those in the
        window's reach that may be rewritten; all entries of a row differ, so scattering is safe.
        """
        masked = self.masked & window.open
        order = 2 - masked.to(torch.uint8) - (self.editable & window.reach).to(torch.uint8)
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
    view. `key_mask` and `packing` say where padding is; both are None when there is none.
    """

    def __init__(self, canvas: Canvas, branches: Sequence[str]):
        self.branches, self.count, self.vocab = tuple(branches), len(canvas), canvas.vocab
        self.prefixes = [self._prefix(conditions, name) for name in branches for conditions in canvas.conditions]
        answers = canvas.lengths * len(branches)
        width = max(len(p) for p in self.prefixes) + max(canvas.lengths)
        starts = torch.tensor([len(p) for p in self.prefixes])
        ids = torch.full((len(self.prefixes), width), canvas.vocab.pad)
        for index, prefix in enumerate(self.prefixes):
            ids[index, : len(prefix)] = prefix
        lengths = starts + torch.tensor(answers)
        self.length, device = int(lengths.max()), canvas.device
        self.real = (torch.arange(self.length) < lengths[:, None]).to(device)                  # (nB, L)
        self._ids, self.starts, self.ends = ids.to(device), starts.to(device), lengths.to(device)
        self.lengths: list[int] = lengths.tolist()
        self.where = self.starts[:, None] + torch.arange(max(canvas.lengths), device=device)   # (nB, T)
        self.busy, self.steps = [True] * len(self.lengths), [1] * len(self.lengths)
        self.number, self.first_open, self.last_open = 0, self.starts, self.starts
        self.soft: Tensor | None = None
        """(nB, L, D) added to the embeddings, see `dimoo.sampling.smoothing`."""
        self._views: dict[int, Sequences] = {}
        self._mask()
        self.read(canvas)

    @staticmethod
    def _prefix(conditions: Mapping[str, Tensor], name: str) -> Tensor:
        if name not in conditions:
            raise ValueError(f"this sample has no branch {name!r}; it has: {', '.join(conditions)}")
        return conditions[name]

    def _mask(self) -> None:
        self.key_mask = None if min(self.lengths) == self.length else self.real
        self.packing = Packing.of(self.lengths, self.length, self.real.device)

    @property
    def ids(self) -> Tensor:
        """(nB, L)."""
        return self._ids[:, : self.length]

    @property
    def masked(self) -> Tensor:
        """(nB, L) bool: positions that hold the mask id."""
        return (self.ids == self.vocab.mask) & self.real

    def enter(self, window: Window, number: int) -> None:
        """A window begins: where it lies in each sequence, (nB,), and how many steps each has in it, on the host."""
        places = torch.arange(window.open.shape[1], device=window.open.device).expand_as(window.open)
        first = places.masked_fill(~window.open, window.open.shape[1] - 1).amin(1)
        last = places.masked_fill(~window.open, 0).amax(1)
        count = len(self.branches)
        self.number, self.steps = number, window.steps * count
        self.first_open, self.last_open = (edge.repeat(count) + self.starts for edge in (first, last))     # (nB,)
        self._views.clear()

    def read(self, canvas: Canvas, busy: Sequence[bool] | None = None) -> None:
        """Copy the canvas into every branch. Padding of short answers may spill over the end: it is never read.

        `busy` says on the host which rows will commit something now; the others need no logits.
        """
        self._ids.scatter_(1, self.where, canvas.ids.repeat(len(self.branches), 1))
        self.busy = [True] * len(self.lengths) if busy is None else list(busy) * len(self.branches)

    def positions(self, rows: Tensor) -> Tensor:
        """Answer positions (B, M) -> absolute positions (nB, M) in each sequence.

        Rows that are not valid may lie in the padding behind a short answer; they are kept inside their sequence.
        """
        return (rows.repeat(len(self.branches), 1) + self.starts[:, None]).minimum(self.ends[:, None] - 1)

    def spread(self, rows: Tensor, values: Tensor) -> Tensor:
        """values (nB, M, D) at answer positions `rows` (B, M) -> (nB, L, D), zero elsewhere."""
        wide = values.new_zeros(*self._ids.shape, values.shape[-1])
        places = rows.repeat(len(self.branches), 1) + self.starts[:, None]
        return ops.scatter_rows(wide, places, values)[:, : self.length]

    def first(self, branches: int) -> Sequences:
        """A view on the first branches only."""
        if branches == len(self.branches):
            return self
        n = branches * self.count
        if branches not in self._views:
            self._views[branches] = self._part(slice(0, n))
            self._views[branches].branches = self.branches[:branches]
        view = self._views[branches]
        view.busy = self.busy[:n]
        return view

    def take(self, members: list[int]) -> Sequences:
        """A copy of some sequences, whatever their branch: what a cache sends through the network together."""
        return self._part(members)

    def _part(self, chosen: slice | list[int]) -> Sequences:
        part = copy.copy(self)
        part._views = {}
        numbers = range(len(self.lengths))[chosen] if isinstance(chosen, slice) else chosen
        where = chosen if isinstance(chosen, slice) else ops.index(tuple(chosen), self._ids.device)
        for name in ("prefixes", "lengths", "busy", "steps"):
            setattr(part, name, [getattr(self, name)[number] for number in numbers])
        for name in ("_ids", "starts", "ends", "where", "real", "first_open", "last_open"):
            setattr(part, name, getattr(self, name)[where])
        part.soft = None if self.soft is None else self.soft[where]
        part._mask()
        return part
