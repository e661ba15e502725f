"""The scheduler: from guided logits to what is written.

    rule out the mask id -> processors -> truncate -> draw a token (Gumbel-max) -> confidence, early rejection,
    annealed noise -> what goes back to mask -> the transfer rule -> edits

Pictures and text differ in the settings only. MaskGIT (Chang et al. 2022), Lumina-DiMOO, LLaDA (Nie et al. 2025).
Unlike the released code the quota is exact (ranks, not a comparison with a cut-off value) and the arithmetic
is float32; `LowPrecisionNoise` restores the published rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dimoo import ops
from dimoo.canvas import Canvas, Update, Window
from dimoo.combinations import refuse
from dimoo.sampling.editing import TokenEditing
from dimoo.sampling.noise import GumbelNoise, Noise
from dimoo.sampling.processors import EarlyRejection, Processor
from dimoo.sampling.quotas import Quota, cosine
from dimoo.sampling.remasking import Remasking, Written
from dimoo.sampling.rules import Candidates, TransferRule, ranks
from dimoo.sampling.rules import Quota as ByQuota
from dimoo.sampling.timetable import OpenTimetable, Timetable
from dimoo.sampling.tokens import Confidence, Truncation, log_probability
from dimoo.stream import PUT_BACK, RANK, TOKEN


def constant(progress: float) -> float:
    """As published: the noise on the confidence never fades."""
    return 1.0


def fading(progress: float) -> float:
    """MaskGIT's linear annealing of the noise on the confidence: 1 at the start, 0 at the end."""
    return 1.0 - progress


ANNEALINGS: dict[str, Callable[[float], float]] = {"constant": constant, "linear": fading}


@dataclass(frozen=True)
class Drawn:
    """Candidates: ids within the slice, how sure each is, its log-probability at temperature 1, all (B, M).

    `whole` gives (B, M, K) log-probabilities: the fused pass never writes them, and few ask.
    """

    ids: Tensor
    sure: Tensor
    log_p: Tensor
    whole: Callable[[], Tensor]


@dataclass(frozen=True)
class Scheduler:
    """Commit what the rule takes of the surest tokens.

    Args:
        quota: commits per step, see `QUOTAS`; rules that decide themselves ignore it.
        temperature: of the token draw; 0 takes the best token.
        rank_temperature: noise on the log-confidence that decides what is committed; None: the same.
        anneal: factor on that noise over progress in [0, 1).
        truncation, confidence, noise: see `tokens` and `noise`.
        rule: which positions are written, see `RULES`.
        processors: change the logits first, see `PROCESSORS`.
        reject: damps early end tokens.
        remask: puts written positions back to mask, see `REMASKINGS`.
        edit: replaces written tokens in place.
        unroll: steps between two looks of the host at the device, where their number is not known in advance.
    """

    quota: Quota = cosine
    temperature: float = 1.0
    rank_temperature: float | None = None
    anneal: Callable[[float], float] = constant
    truncation: Truncation = field(default_factory=Truncation)
    confidence: Confidence = log_probability
    noise: Noise = field(default_factory=GumbelNoise)
    rule: TransferRule = field(default_factory=ByQuota)
    processors: Sequence[Processor] = ()
    reject: EarlyRejection | None = None
    remask: Remasking | None = None
    edit: TokenEditing | None = None
    unroll: int = 1

    def __post_init__(self):
        for name in ("temperature", "rank_temperature"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must be 0 or more, got {value}")
        if self.unroll < 1:
            raise ValueError(f"unroll must be at least 1, got {self.unroll}")
        refuse(rule=self.rule, schedule=self.quota, remask=self.remask, reject=self.reject)

    def timetable(self, canvas: Canvas, window: Window) -> Timetable:
        """The steps of a window, and the memory of whatever remembers."""
        window = window if self.edit is None else self.edit.widened(canvas, window)
        quota = self.quota if self.remask is None else self.remask.quota(self.quota)
        given = list(zip(window.counts, window.steps, strict=True))
        width = max((steps for count, steps in given if count), default=0)
        commits = [(quota(count, steps) + [0] * width)[:width] for count, steps in given]
        table = torch.tensor(commits, device=canvas.device)
        open_ended, adaptive = self.rule.adaptive or self.edit is not None, self.rule.adaptive
        most = (max(window.counts) if adaptive else width) + (self.edit.post_steps + 1 if self.edit else 0)
        parts = {
            "processors": [processor.open(canvas) for processor in self.processors],
            "editing": self.edit and self.edit.open(canvas, most),
            "then": None if self.remask is None else torch.zeros_like(canvas.ids, dtype=torch.float32),
            "looks": self.edit is not None or (self.remask is not None and self.remask.looks),
            "every_step": self.remask is not None,
        }
        if not open_ended:
            return Timetable(canvas, window, commits, table, **parts)
        return OpenTimetable(canvas, window, commits, table, **parts, most=most, unroll=self.unroll, adaptive=adaptive)

    def step(
        self, logits: Tensor, canvas: Canvas, rows: Tensor, valid: Tensor, timetable: Timetable, step: int, draw: int,
        weights: Sequence[float] = (1.0,),
    ) -> Update:  # fmt: skip
        """One decision.

        Args:
            logits: (n*B, M, K) over the canvas's vocabulary slice, of n branches with these `weights`.
            rows, valid: (B, M) open positions, from `Canvas.open_rows`.
            step: of this window. draw: the number of the noise, another one for each step of a generation.
        """
        drawn = self.draw(logits, weights, canvas, rows, valid, timetable, draw)
        probability = drawn.log_p.exp()
        found = self.found(drawn, probability, canvas, rows, valid, timetable, step, draw)
        back = self.put_back(found, canvas, timetable, draw)
        write = self.rule(found) & valid
        if self.rule.adaptive:                                                  # or it might never end
            short = write.sum(1, keepdim=True) < found.least[:, None]
            write = write | (valid & short & (found.rank < found.least[:, None]))
        if self.remask is not None:
            timetable.then.scatter_(1, rows, torch.where(write, probability.float(), timetable.then.gather(1, rows)))
        return self.update(found, write, back, probability, canvas, timetable)

    @property
    def common(self) -> bool:
        """Whether one fused pass can do what is asked: no truncation, float32 noise, probability as confidence."""
        plain = self.truncation == Truncation() and self.confidence is log_probability and not self.processors
        return plain and type(self.noise) is GumbelNoise

    def draw(
        self, logits: Tensor, weights: Sequence[float], canvas: Canvas, rows: Tensor, valid: Tensor,
        timetable: Timetable, draw: int,
    ) -> Drawn:  # fmt: skip
        """A candidate for every row."""
        if self.common:
            column, keys = masked_column(canvas, logits), canvas.stream.at(TOKEN, draw, rows)
            ids, log_p = ops.guided_sample(logits, weights, self.temperature, keys, column)
            return Drawn(ids, log_p, log_p, lambda: suppress(ops.combine(logits, weights), canvas).log_softmax(-1))
        logits = suppress(ops.combine(logits, weights), canvas)
        for process in timetable.processors:
            logits = process(logits, rows, valid)
        logits = logits.to(self.noise.dtype)
        log_p = logits.log_softmax(-1)
        if self.temperature == 0:
            ids = logits.argmax(-1)
        else:
            noise = self.noise.token(canvas.stream, draw, rows, logits.shape[-1])
            ids = (self.truncation(logits) / self.temperature + noise).argmax(-1)
        return Drawn(ids, self.confidence(log_p, ids), log_probability(log_p, ids), lambda: log_p)

    def found(
        self, drawn: Drawn, probability: Tensor, canvas: Canvas, rows: Tensor, valid: Tensor, timetable: Timetable,
        step: int, draw: int,
    ) -> Candidates:  # fmt: skip
        """The candidates with their order of preference."""
        ids, score = drawn.ids, drawn.sure.float()                              # (B, M)
        if self.reject is not None:
            progress = (step, timetable.lasting, timetable.planned(step)[0])
            ends = canvas.vocab.is_end(ids + canvas.columns.start)
            score, probability = self.reject(score, probability, ends, progress)
        heat = self.temperature if self.rank_temperature is None else self.rank_temperature
        if heat := heat * self.anneal(step / timetable.steps):
            score = score + heat * self.noise.rank(canvas.stream, draw, rows)

        def shuffle() -> Tensor:
            return canvas.stream.uniform(RANK, draw, rows).squeeze(-1)

        quota = timetable.quota(step)
        return Candidates(rows, valid, ids, drawn.whole, probability, score, quota, step, shuffle)

    def put_back(self, found: Candidates, canvas: Canvas, timetable: Timetable, draw: int) -> Tensor | None:
        """(B, T) bool, what returns to mask; each of them raises what is committed in this step by one."""
        if self.remask is None:
            return None
        here = canvas.editable & timetable.window.open & ~canvas.masked
        now = None
        if self.remask.looks:
            current = (canvas.ids.gather(1, found.rows) - canvas.columns.start).clamp(0, found.log_p.shape[-1] - 1)
            current_p = log_probability(found.log_p, current).float().exp()
            now = torch.ones_like(timetable.then).scatter(1, found.rows, current_p)
        before, after, most = timetable.planned(found.step)
        places = torch.arange(here.shape[1], device=here.device).expand_as(here)
        uniform = canvas.stream.uniform(PUT_BACK, draw, places).squeeze(-1)
        back = self.remask(Written(here, timetable.then, now, before, after, uniform))
        back = back & (ranks(uniform, back) < most[:, None])
        found.quota, found.least = found.quota + back.sum(1), found.least + back.sum(1)
        return back

    def update(
        self, found: Candidates, write: Tensor, back: Tensor | None, probability: Tensor, canvas: Canvas,
        timetable: Timetable,
    ) -> Update:  # fmt: skip
        """What is written, edited and put back, and which rows may still change what they have written."""
        ids, busy = found.ids + canvas.columns.start, None
        left = (found.open & ~write).sum(1)                                     # (B,)
        if back is not None:
            left = left + back.sum(1)
            busy = left > 0
        if timetable.editing is not None:
            visible = canvas.editable & timetable.window.reach & ~canvas.masked
            visible = (visible if back is None else visible & ~back).gather(1, found.rows)
            write = write | timetable.editing(ids, probability, visible, found.rows, write, found.step, left)
            busy = ~timetable.editing.settled
        return Update(found.rows, ids, write, probability, back, busy)


def masked_column(canvas: Canvas, logits: Tensor) -> int | None:
    """The column of the mask id, where the slice has it."""
    column = canvas.vocab.mask - canvas.columns.start
    return column if 0 <= column < logits.shape[-1] else None


def suppress(logits: Tensor, canvas: Canvas) -> Tensor:
    """The mask id is never a token: committing it would leave the position open for ever."""
    return ops.without(logits, masked_column(canvas, logits))
