"""Rollouts: groups of answers from the project's own loop, with the states they went through.

    tasks x group -> canvas -> denoise (the pipeline's settings, nothing special) -> answers + states

Shapes: B samples (prompt-major: the G samples of prompt 0 first), T answer length, U tokens written in a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dimoo.canvas import Canvas, Update
from dimoo.guidance import Guider
from dimoo.ops import combine, gather_rows
from dimoo.sampling import Scheduler, Step, denoise
from dimoo.settings import Settings
from dimoo.tasks import Task


@dataclass(frozen=True)
class State:
    """One step of a rollout: what stood there, and what was written how surely.

    ids (B, T) before the step. rows, chosen (B, U): where, and which ids; valid (B, U): which of these are real.
    log_p (B, U): under the sampler's own softmax (restricted, tempered). entropy (B,): mean over the
    tokens written, in nats. weights (n,): of the guider's branches.
    """

    step: int
    ids: Tensor
    rows: Tensor
    chosen: Tensor
    valid: Tensor
    log_p: Tensor
    entropy: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Rollout:
    """A batch of finished answers and all their states. `canvas` holds the answers; `guider` names the branches."""

    tasks: Sequence[Task]
    canvas: Canvas
    states: list[State]
    sampler: Sampler
    guider: Guider
    group: int

    def answer(self, index: int) -> Tensor:
        """Ids of one sample, on the host."""
        return self.canvas.row(index)

    def commits(self) -> Tensor:
        """(B, T) number of the step that wrote each position; -1 where none did."""
        found = torch.full_like(self.canvas.ids, -1)
        for number, state in enumerate(self.states):
            before = found.gather(1, state.rows)
            found.scatter_(1, state.rows, torch.where(state.valid, number, before))
        return found

    def entropies(self) -> tuple[Tensor, Tensor]:
        """Entropy and number of tokens of every step, (B, S) each."""
        entropy = torch.stack([state.entropy for state in self.states], 1)
        return entropy, torch.stack([state.valid.sum(1).float() for state in self.states], 1)


@dataclass(frozen=True)
class Sampler:
    """The distribution tokens are drawn from: softmax(logits / temperature) without the mask id."""

    temperature: float
    mask_column: int | None
    """Of the vocabulary slice; None: not in it."""

    @classmethod
    def of(cls, scheduler: Scheduler, canvas: Canvas) -> Sampler:
        if not scheduler.temperature > 0:
            raise ValueError("rollouts need temperature > 0: greedy samples of a prompt are all alike")
        column, width = canvas.vocab.mask - canvas.columns.start, canvas.columns.stop - canvas.columns.start
        return cls(scheduler.temperature, column if 0 <= column < width else None)

    def log_softmax(self, logits: Tensor) -> Tensor:
        """(..., K) guided logits -> log-probabilities, float32; -inf for the mask id."""
        logits = logits.float()
        if self.mask_column is not None:
            column = torch.full((1,), self.mask_column, device=logits.device)
            logits = logits.index_fill(-1, column, -torch.inf)
        return (logits / self.temperature).log_softmax(-1)


def entropy(log_p: Tensor) -> Tensor:
    """(..., K) log-probabilities -> nats."""
    return -(log_p.exp() * log_p.clamp_min(-1e4)).sum(-1)


@dataclass(frozen=True)
class Seen:
    """A step as it was decided: the ids (B, T) before it, and of the tokens it means to write, (B, U) each: places
    among the rows asked for, log-probabilities, entropies. Only these rows get a softmax: most are not written yet."""

    before: Tensor
    places: Tensor
    log_p: Tensor
    entropy: Tensor


class Recorder:
    """A scheduler that decides as the one inside and remembers what it was shown."""

    def __init__(self, scheduler: Scheduler, sampler: Sampler):
        self.scheduler, self.sampler = scheduler, sampler
        self.seen: list[Seen] = []

    def timetable(self, canvas: Canvas, window):
        return self.scheduler.timetable(canvas, window)

    def step(
        self, logits: Tensor, canvas: Canvas, rows: Tensor, valid: Tensor, timetable, step: int, draw: int,
        weights: Sequence[float] = (1.0,),
    ) -> Update:  # fmt: skip
        """`Scheduler.step`."""
        before = canvas.ids.clone()
        update = self.scheduler.step(logits, canvas, rows, valid, timetable, step, draw, weights)
        most = max(1, int(update.write.sum(1).max()))
        places = update.write.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]     # (B, U)
        log_p = self.sampler.log_softmax(gather_rows(combine(logits, weights), places))                  # (B, U, K)
        chosen = (update.ids.gather(1, places) - canvas.columns.start)[..., None]
        self.seen.append(Seen(before, places, log_p.gather(-1, chosen)[..., 0], entropy(log_p)))
        return update


def roll_out(
    denoiser, codec, tasks: Sequence[Task], group: int, settings: Settings, seed: int, index: int = 0
) -> Rollout:
    """`group` answers of each task, as one batch; sample k has the random stream (seed, index + k).

    Args:
        settings: filled, see `Settings.filled`.

    Raises:
        ValueError: settings under which a token's probability could not be read again.
    """
    check(settings)
    kind = tasks[0].kind
    rows = [row for task in tasks for row in [task.prepare(codec)] * group]
    seeds = [(seed, index + k) for k in range(len(rows))]
    canvas = Canvas(rows, codec.vocab, seeds, denoiser.device)
    scheduler, guider = settings.scheduler(), settings.guider()
    sampler = Sampler.of(scheduler, canvas)
    recorder, states = Recorder(scheduler, sampler), []
    blocks = settings.blocks(kind)

    def remember(step: Step) -> None:
        weights = torch.tensor(guider.weights(step.number / settings.num_inference_steps), device=denoiser.device)
        states.append(_state(step, recorder.seen.pop(), weights))

    denoise(
        canvas, denoiser, scheduler=recorder, guider=guider, blocks=blocks, stop=settings.stop(kind), on_step=remember
    )
    canvas.ids = canvas.ids.clone()                                             # leaves inference mode
    every = [task for task in tasks for _ in range(group)]
    return Rollout(every, canvas, [_leave(state) for state in states], sampler, guider, group)


PLAIN = {"preset": "exact", "cache": None, "noise": "float32", "top_k": None, "top_p": None, "min_p": None}
"""Settings that rollouts cannot change: a state read again must have the same probabilities, none of them 0."""


def check(settings: Settings) -> None:
    for name, wanted in PLAIN.items():
        if (value := getattr(settings, name)) != wanted:
            raise ValueError(f"rollouts need {name}={wanted!r}, got {value!r}: probabilities could not be read again")


def _state(step: Step, seen: Seen, weights: Tensor) -> State:
    """What was written, and where that was allowed, written tokens first."""
    rows, chosen, valid = (x.gather(1, seen.places) for x in (step.update.rows, step.update.ids, step.update.write))
    mean = seen.entropy.masked_fill(~valid, 0).sum(1) / valid.sum(1).clamp_min(1)
    return State(step.tick, seen.before, rows, chosen, valid, seen.log_p.masked_fill(~valid, 0), mean, weights)


def _leave(state: State) -> State:
    """Copies that may take part in training: the loop runs in inference mode."""
    return replace(state, **{name: x.clone() for name, x in vars(state).items() if isinstance(x, Tensor)})
