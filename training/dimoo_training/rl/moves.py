"""Moves: (state, tokens written) pairs whose likelihood is learned, and the ways to make them from a rollout.

The methods differ in the state a token's log-probability is read from; each is a function in ESTIMATORS.
Shapes: Q moves, n branches, L sequence, U tokens of a move, B samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from dimoo.canvas import Canvas, Sequences
from dimoo.guidance import active
from dimoo_training.rl.objectives import noise_levels
from dimoo_training.rl.rollout import Rollout, Sampler


@dataclass(frozen=True)
class Moves:
    """Tokens and the sequences they are read in.

    ids (Q, n, L), key_mask (Q, n, L) bool, where (Q, n, U) positions in the sequence, rows (Q, U) those in the answer,
    chosen (Q, U) ids, valid (Q, U) bool, old (Q, U) log-probabilities when sampled (None: not known yet), sample (Q,),
    weights (Q, n) of the guider's branches.
    """

    ids: Tensor
    key_mask: Tensor
    where: Tensor
    rows: Tensor
    chosen: Tensor
    valid: Tensor
    old: Tensor | None
    sample: Tensor
    weights: Tensor
    columns: slice
    sampler: Sampler

    def __len__(self) -> int:
        return len(self.sample)

    def take(self, index: Tensor) -> Moves:
        """Some of them."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: x[index] for name, x in parts.items() if isinstance(x, Tensor)})

    def split(self, size: int) -> Iterator[Moves]:
        """In micro-batches."""
        for start in range(0, len(self), size):
            yield self.take(torch.arange(start, min(start + size, len(self)), device=self.sample.device))


def moves_of(
    canvas: Canvas, branches: Sequence[str], ids: Tensor, rows: Tensor, valid: Tensor, chosen: Tensor, sampler: Sampler,
    weights: Tensor, old: Tensor | None = None,
) -> Moves:  # fmt: skip
    """One move a sample: `ids` (B, T) in the sequences of the canvas; rows, valid, chosen, old (B, U); weights (n,)."""
    kept, canvas.ids = canvas.ids, ids
    sequences = Sequences(canvas, branches)
    canvas.ids = kept
    n, count = len(branches), len(canvas)

    def by_sample(x: Tensor) -> Tensor:                                         # (nB, ...) -> (B, n, ...)
        return x.unflatten(0, (n, count)).transpose(0, 1)

    everywhere = torch.ones_like(sequences.ids, dtype=torch.bool)
    mask = everywhere if sequences.key_mask is None else sequences.key_mask
    return Moves(
        by_sample(sequences.ids).clone(), by_sample(mask).clone(), by_sample(sequences.positions(rows)), rows, chosen,
        valid, old, torch.arange(count, device=ids.device), weights.expand(count, n), canvas.columns, sampler,
    )  # fmt: skip


WIDE, TALL = ("where", "rows", "chosen", "valid"), ("ids", "key_mask", "sample", "weights")


def join(parts: Sequence[Moves]) -> Moves:
    """Moves of one kind together; those with fewer tokens are filled up."""
    most = max(part.chosen.shape[1] for part in parts)

    def widened(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (0, most - x.shape[-1]))

    joined = {name: torch.cat([widened(getattr(part, name)) for part in parts]) for name in WIDE}
    joined |= {name: torch.cat([getattr(part, name) for part in parts]) for name in TALL}
    known = all(part.old is not None for part in parts)
    return replace(parts[0], **joined, old=torch.cat([widened(part.old) for part in parts]) if known else None)


# Ways to read the likelihood of a rollout.


def trajectory(rollout: Rollout, steps: Sequence[int], rng: np.random.Generator) -> Moves:
    """The stored states themselves at the chosen steps (Self-GRPO; CJ-GRPO; TraceRL): nothing is approximated but
    the order of commits, which counts as given."""
    states = [rollout.states[number] for number in steps]
    n = max(active(s.weights.tolist()) for s in states)                         # branches that were computed
    return join([
        moves_of(
            rollout.canvas, rollout.guider.branches[:n], s.ids, s.rows, s.valid, s.chosen, rollout.sampler,
            s.weights[:n], s.log_p,
        ) for s in states
    ])  # fmt: skip


def random_mask(rollout: Rollout, steps: Sequence[int], rng: np.random.Generator) -> Moves:
    """Fresh masks of the answer at ratios that cover (0, 1), one a step; the prompt stays clean (UniGRPO)."""
    ratios = (rng.permutation(len(steps)) + rng.random(len(steps))) / len(steps)
    return join([_noised(rollout, lambda n, r=r: max(1, round(n * r)), rng) for r in ratios])


def fully_masked(rollout: Rollout, steps: Sequence[int], rng: np.random.Generator) -> Moves:
    """Everything from the empty canvas in one forward (d1; HT-GRPO): a marginal of each token, the cheapest."""
    return _noised(rollout, lambda n: n, rng)


def shared_noise(rollout: Rollout, steps: Sequence[int], rng: np.random.Generator) -> Moves:
    """For likelihood bounds: as many masks a sample as steps, at stratified exact counts (VRPO)."""
    most = int(rollout.canvas.start.sum(1).max())
    levels = noise_levels(most, len(steps), rng)
    return join([_noised(rollout, lambda n, c=c: min(n, c), rng) for c in levels])


Estimator = Callable[[Rollout, Sequence[int], np.random.Generator], Moves]

ESTIMATORS: dict[str, Estimator] = {
    "trajectory": trajectory, "random-mask": random_mask, "fully-masked": fully_masked, "shared-noise": shared_noise,
}  # fmt: skip


def _noised(rollout: Rollout, count: Callable[[int], int], rng: np.random.Generator) -> Moves:
    """The finished answers with some tokens put back to mask, which are the move."""
    canvas = rollout.canvas
    places = [np.flatnonzero(row) for row in canvas.start.numpy()]
    drawn = [rng.permutation(row)[: count(len(row))] for row in places]
    most = max(len(row) for row in drawn)
    rows, valid = np.zeros((len(drawn), most), dtype=np.int64), np.zeros((len(drawn), most), dtype=bool)
    for k, row in enumerate(drawn):
        spare = np.setdiff1d(np.arange(canvas.start.shape[1]), row)[: most - len(row)]
        rows[k], valid[k, : len(row)] = np.concatenate([row, spare]), True
    at, real = (torch.from_numpy(x).to(canvas.device) for x in (rows, valid))
    chosen = canvas.ids.gather(1, at)
    real = real & (chosen != canvas.vocab.mask)                                 # a text that ended early keeps masks
    ids = canvas.ids.scatter(1, at, torch.where(real, canvas.vocab.mask, chosen))
    weights = rollout.states[0].weights
    n = active(weights.tolist())
    return moves_of(canvas, rollout.guider.branches[:n], ids, at, real, chosen, rollout.sampler, weights[:n])
