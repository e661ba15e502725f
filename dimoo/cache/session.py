"""The memory of one window of one generation, and the passes that keep it fresh.

    full   every position is computed; fresh keys, values and logits
    wide   as full, but what is reused (a source picture, the prompt) keeps its keys and values
    narrow only the rows that the selection names; everything else is remembered
    bare   as full, and nothing is kept, because the next step will be full again

Each sequence of the batch has its own state, and takes part only in steps in which its row commits something: so a
row is the same alone and in a batch. Sequences that need the same kind of pass go through the network together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dimoo import ops
from dimoo.cache.graphs import GraphedPasses, available
from dimoo.cache.store import KVStore, needs_cache, on
from dimoo.canvas import Sequences
from dimoo.late import Late

if TYPE_CHECKING:
    from dimoo.cache.max_logit import MaxLogitCache


@dataclass
class State:
    """What is remembered of n sequences of length L."""

    ids: Tensor
    """(n, L) the ids that keys and values were computed from."""
    best: Tensor
    """(n, L) largest logit of each position, +inf where none was asked for."""
    slot: Tensor
    """(n, L) where the logits of a position lie in `stored`; positions that were never open share the last slot."""
    stored: Tensor
    """(n, slots, K) latest logits of the positions that were open at the start of the window."""
    kv: KVStore = field(default_factory=KVStore)

    @classmethod
    def empty(cls, ids: Tensor, asked: Tensor, columns: int, dtype: torch.dtype) -> State:
        """For ids (n, L), of which the positions asked (n, M) are open."""
        slots = asked.shape[1]
        slot = torch.full_like(ids, slots)
        slot.scatter_(1, asked, torch.arange(slots, device=ids.device).expand_as(asked))
        best = torch.full(ids.shape, torch.inf, device=ids.device)
        stored = torch.zeros(len(ids), slots + 1, columns, dtype=dtype, device=ids.device)
        return cls(torch.full_like(ids, -1), best, slot, stored)

    def first(self, count: int) -> State:
        """A view on the first sequences; writes go through."""
        if count == len(self.ids):
            return self
        kv = self.kv.narrow(count, len(self.ids))
        return State(*(x[:count] for x in (self.ids, self.best, self.slot, self.stored)), kv)

    def take(self, members: list[int]) -> State:
        """A copy of some sequences."""
        where = on(self.ids, members)
        return State(*(x[where] for x in (self.ids, self.best, self.slot, self.stored)), self.kv.take(members))

    def put(self, members: list[int], part: State) -> None:
        """Write what `take` gave back."""
        for ours, theirs in ((self.ids, part.ids), (self.best, part.best), (self.stored, part.stored)):
            ours[on(ours, members)] = theirs
        self.kv.put(members, part.kv, len(self.ids))

    def remember(self, rows: Tensor, logits: Tensor) -> None:
        """Logits (n, R, K) of positions (n, R)."""
        ops.scatter_rows(self.stored, self.slot.gather(1, rows), logits)

    def recall(self, rows: Tensor) -> Tensor:
        return ops.gather_rows(self.stored, self.slot.gather(1, rows))

    def saw(self, sequences: Sequences, rows: Tensor | None) -> None:
        """Keys and values of `rows` (n, R), or of all, are now those of the current ids."""
        if rows is None:
            self.ids.copy_(sequences.ids)
        else:
            self.ids.scatter_(1, rows, sequences.ids.gather(1, rows))


@dataclass
class Session:
    """See the module. Shapes: n sequences of length L (branches x batch), M asked rows, R computed rows, K columns."""

    settings: MaxLogitCache
    warm: list[int] = field(default_factory=list)
    """The last step of the warm-up of each sequence, which shares its row's number of steps."""
    state: State | None = None
    wide: Tensor | None = None
    """(n, R) rows of a wide pass."""
    kept: set[int] = field(default_factory=set)
    """Sequences whose keys and values are there."""
    fresh: set[int] = field(default_factory=set)
    """Sequences of which every open position has logits as well."""
    drifted: set[int] = field(default_factory=set)
    late: Late = field(default_factory=Late)
    graphs: GraphedPasses | None = None

    def due(self, member: int, step: int) -> bool:
        """Whether the settings ask for more than a narrow pass."""
        return step <= self.warm[member] or (step - self.warm[member]) % self.settings.refresh == 0

    @property
    def lasting(self) -> bool:
        """Whether every step is due, so that logits are never read again."""
        return self.settings.refresh == 1 or self.settings.warmup == 1

    def kind(self, member: int, step: int) -> str:
        """The pass that a sequence needs now."""
        reuse, due = self.settings.reuse, self.due(member, step)
        if not due and member in self.fresh and member not in self.drifted:
            return "narrow"
        if self.wide is not None and member in self.kept and step % reuse.refresh:
            return "wide"
        return "bare" if due and self.due(member, step + 1) and not reuse else "full"

    def logits(self, denoiser, sequences: Sequences, rows: Tensor, columns: slice, step: int) -> Tensor:
        """Logits (n, M, K) of the answer positions `rows` (B, M) in every branch; zero for rows that are not busy."""
        asked, count = sequences.positions(rows), len(sequences.lengths)        # (n, M)
        self.prepare(denoiser, sequences, asked, columns)
        kinds: dict[str, list[int]] = {}
        for member in [k for k in range(count) if sequences.busy[k]] or range(count):
            kinds.setdefault(self.kind(member, step), []).append(member)
        answer = None
        for kind, members in kinds.items():
            if len(members) == count:
                return self.run(kind, denoiser, sequences, members, self.state.first(count), asked, columns)
            state = self.state.take(members)
            part = self.run(kind, denoiser, sequences.take(members), members, state, asked[on(asked, members)], columns)
            self.state.put(members, state)
            answer = part.new_zeros(count, *part.shape[1:]) if answer is None else answer
            answer[on(answer, members)] = part
        return answer

    def prepare(self, denoiser, sequences: Sequences, asked: Tensor, columns: slice) -> None:
        """Take memory; again, from the start, when branches join that were not asked before."""
        needs_cache(denoiser)
        if self.state is not None and len(self.state.ids) >= len(asked):
            return
        self.state = State.empty(sequences.ids, asked, columns.stop - columns.start, denoiser.dtype)
        self.kept, self.fresh, self.drifted = set(), set(), set()
        self.warm = [int(steps * self.settings.warmup) for steps in sequences.steps]
        wide = self.settings.reuse and self.settings.reuse.rows(sequences)
        self.wide = None if wide is None else wide.to(asked.device)

    def run(self, kind: str, denoiser, sequences, members, state: State, asked: Tensor, columns: slice) -> Tensor:
        """One pass of some sequences, whose logits (m, M, K) are asked at `asked` (m, M)."""
        given = {
            "key_mask": sequences.key_mask, "packing": sequences.packing, "columns": columns, "soft": sequences.soft,
        }  # fmt: skip
        if kind == "bare":
            self.kept.difference_update(members)
            self.fresh.difference_update(members)
            return denoiser(sequences.ids, logit_rows=asked, **given).logits
        if kind == "narrow":
            return self.narrow(denoiser, sequences, members, state, asked, given)
        rows = self.some(self.wide, members) if kind == "wide" else None
        logits = self.whole(denoiser, sequences, state, rows, asked, given)
        state.saw(sequences, rows)
        self.kept.update(members)
        self.drifted.difference_update(members)
        if not self.lasting:
            self.fresh.update(members)
            state.remember(asked, logits)
        return logits

    def whole(self, denoiser, sequences, state: State, rows: Tensor | None, asked: Tensor, given: dict) -> Tensor:
        """A full pass, or a wide one over `rows` (m, R)."""
        if rows is None and self.settings.select.everywhere and not self.lasting:
            everything = denoiser(sequences.ids, kv=state.kv, **given).logits   # (m, L, K)
            state.best.copy_(everything.amax(-1))
            return ops.gather_rows(everything, asked)
        wanted = asked if rows is None else places(rows, asked, sequences.length)
        logits = denoiser(sequences.ids, kv=state.kv, rows=rows, logit_rows=wanted, **given).logits
        state.best.scatter_(1, asked, logits.amax(-1).float())
        return logits

    @staticmethod
    def some(x: Tensor, members: list[int]) -> Tensor:
        """x at `members`; a view of the first ones where it can be."""
        count = len(members)
        return x[:count] if members == list(range(count)) else x[on(x, members)]

    def narrow(self, denoiser, sequences, members, state: State, asked: Tensor, given: dict) -> Tensor:
        settings, masked = self.settings, sequences.masked
        changed = (state.ids != sequences.ids) & sequences.real
        rows = settings.select(state.best, changed, masked, sequences.lengths, 1 - settings.ratio)        # (m, R)
        still = sequences.soft is None and len(members) == len(self.state.ids)      # nothing but ids and rows changes
        if settings.graphs and still and available(rows.device):
            self.graphs = self.graphs or GraphedPasses(denoiser)
            logits = self.graphs.narrow(sequences.ids, rows, state.kv, given)
        else:
            logits = denoiser(sequences.ids, kv=state.kv, rows=rows, **given).logits                      # (m, R, K)
        largest, before = logits.amax(-1).float(), state.best.gather(1, rows)
        state.best.scatter_(1, rows, largest)
        state.saw(sequences, rows)
        state.remember(rows, logits)
        if settings.drift is not None:
            self.watch(members, (largest - before).abs(), masked.gather(1, rows) & before.isfinite())
        return state.recall(asked)

    def watch(self, members: list[int], moved: Tensor, counted: Tensor) -> None:
        """Note the sequences whose counted rows (m, R) have moved too far; they are refreshed at their next step."""
        mean = moved.masked_fill(~counted, 0).sum(1) / counted.sum(1).clamp_min(1)
        flags = torch.zeros(len(self.state.ids), dtype=torch.bool, device=moved.device)
        flags[on(flags, members)] = mean > self.settings.drift
        known = self.late(flags)
        if known is not None:
            self.drifted = set(known.nonzero().flatten().tolist())


def places(rows: Tensor, positions: Tensor, length: int) -> Tensor:
    """Where positions (m, M) stand among rows (m, R) that hold them, each below `length`."""
    inverse = rows.new_zeros(len(rows), length)
    inverse.scatter_(1, rows, torch.arange(rows.shape[1], device=rows.device).expand_as(rows))
    return inverse.gather(1, positions)
