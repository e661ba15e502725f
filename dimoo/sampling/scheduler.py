"""The scheduler: from guided logits to what is written.

    suppress mask id -> truncate -> draw a token (Gumbel-max) -> confidence (+ annealed noise) -> commit the quota

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
from dimoo.sampling.noise import GumbelNoise, Noise
from dimoo.sampling.quotas import Quota, cosine
from dimoo.sampling.tokens import Confidence, Truncation, log_probability
from dimoo.stream import TOKEN


def constant(progress: float) -> float:
    """As published: the noise on the confidence never fades."""
    return 1.0


def fading(progress: float) -> float:
    """MaskGIT's linear annealing of the noise on the confidence: 1 at the start, 0 at the end."""
    return 1.0 - progress


ANNEALINGS: dict[str, Callable[[float], float]] = {"constant": constant, "linear": fading}


@dataclass(frozen=True)
class Timetable:
    """The steps of one window: what each row commits when. Host numbers, so that no step waits for the device."""

    commits: list[list[int]]
    """commits[row][step]."""
    table: Tensor
    """The same as (B, steps) on the device."""

    @property
    def steps(self) -> int:
        return self.table.shape[1]

    def left(self, step: int) -> int:
        """Most masks any row has before `step`."""
        return max(sum(row[step:]) for row in self.commits)

    def busy(self, step: int) -> list[bool]:
        """Which rows commit anything."""
        return [row[step] > 0 for row in self.commits]

    def idle(self, step: int) -> bool:
        """No row commits anything: the forward would change nothing and is skipped."""
        return not any(self.busy(step))


@dataclass(frozen=True)
class Scheduler:
    """Commit the surest tokens by a quota.

    Args:
        quota: commits per step, see `QUOTAS`.
        temperature: of the token draw; 0 takes the best token.
        rank_temperature: noise on the log-confidence that decides what is committed; None: the same.
        anneal: factor on that noise over progress in [0, 1).
        truncation, confidence, noise: see `tokens` and `noise`.
    """

    quota: Quota = cosine
    temperature: float = 1.0
    rank_temperature: float | None = None
    anneal: Callable[[float], float] = constant
    truncation: Truncation = field(default_factory=Truncation)
    confidence: Confidence = log_probability
    noise: Noise = field(default_factory=GumbelNoise)

    def __post_init__(self):
        for name in ("temperature", "rank_temperature"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must be 0 or more, got {value}")

    def timetable(self, canvas: Canvas, window: Window) -> Timetable:
        given = list(zip(window.counts, window.steps, strict=True))
        width = max((steps for count, steps in given if count), default=0)
        commits = [(self.quota(count, steps) + [0] * width)[:width] for count, steps in given]
        return Timetable(commits, torch.tensor(commits, device=canvas.device))

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
        ids, sure, log_p = self.candidates(logits, weights, canvas, rows, draw)             # (B, M) each
        score = sure.float()
        heat = self.temperature if self.rank_temperature is None else self.rank_temperature
        if heat := heat * self.anneal(step / timetable.steps):
            score = score + heat * self.noise.rank(canvas.stream, draw, rows)
        rank = score.masked_fill(~valid, -torch.inf).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        write = valid & (rank < timetable.table[:, step, None])                 # exactly the quota
        return Update(rows, ids + canvas.columns.start, write, log_p.exp())

    @property
    def common(self) -> bool:
        """Whether one fused pass can do what is asked: no truncation, float32 noise, probability as confidence."""
        plain = self.truncation == Truncation() and self.confidence is log_probability
        return plain and type(self.noise) is GumbelNoise

    def candidates(
        self, logits: Tensor, weights: Sequence[float], canvas: Canvas, rows: Tensor, draw: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Candidate ids within the slice, how sure each is, and its log-probability at temperature 1; all (B, M)."""
        if self.common:
            column, keys = masked_column(canvas, logits), canvas.stream.at(TOKEN, draw, rows)
            ids, log_p = ops.guided_sample(logits, weights, self.temperature, keys, column)
            return ids, log_p, log_p
        logits = suppress(ops.combine(logits, weights), canvas).to(self.noise.dtype)
        log_p = logits.log_softmax(-1)
        if self.temperature == 0:
            ids = logits.argmax(-1)
        else:
            noise = self.noise.token(canvas.stream, draw, rows, logits.shape[-1])
            ids = (self.truncation(logits) / self.temperature + noise).argmax(-1)
        return ids, self.confidence(log_p, ids), log_probability(log_p, ids)


def masked_column(canvas: Canvas, logits: Tensor) -> int | None:
    """The column of the mask id, where the slice has it."""
    column = canvas.vocab.mask - canvas.columns.start
    return column if 0 <= column < logits.shape[-1] else None


def suppress(logits: Tensor, canvas: Canvas) -> Tensor:
    """The mask id is never a token: committing it would leave the position open for ever."""
    column = masked_column(canvas, logits)
    if column is None:
        return logits
    index = torch.full((1,), column, device=logits.device)      # made there: no copy to wait for
    return logits.index_fill(-1, index, -torch.inf)
