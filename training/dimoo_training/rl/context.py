"""What every update rule works with: a round of rollouts, the models, and a ledger of numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from dimoo_training.rl import objectives as o
from dimoo_training.rl.likelihood import frozen_log_probabilities
from dimoo_training.rl.moves import ESTIMATORS, Moves
from dimoo_training.rl.recipes import RLRecipe
from dimoo_training.rl.rewards import Samples
from dimoo_training.rl.rollout import Rollout


@dataclass
class Round:
    """One round of rollouts: rewards (P, G), and what it takes to learn from them. `rng` is this round's own."""

    rollout: Rollout
    samples: Samples
    rewards: Tensor
    rng: np.random.Generator


@dataclass
class Piece:
    """A loss to add: of `part` of the objective, read from `ids` (for the message when it is not finite)."""

    part: str
    loss: Tensor
    ids: Tensor


Pieces = Iterator[Piece]


@dataclass
class Ledger:
    """Numbers of a round, averaged over its pieces."""

    values: dict[str, list[Tensor]] = field(default_factory=lambda: defaultdict(list))

    def note(self, name: str, values: Tensor) -> None:
        self.values[name].append(values.detach().float().flatten().cpu())

    def take(self) -> dict[str, float]:
        found = {name: torch.cat(parts) for name, parts in self.values.items()}
        self.values.clear()
        means = {name: float(x.max() if name.endswith("_max") else x.mean()) for name, x in found.items() if len(x)}
        return dict(sorted(means.items()))


@dataclass
class Context:
    """What every rule works with.

    learner: the policy, wrapped for training. network: the same weights, bare. reference: the model at the start.
    supervised: draws a supervised batch, None: there is none. most: the largest of a number over all processes.
    """

    recipe: RLRecipe
    learner: nn.Module
    network: nn.Module
    reference: nn.Module
    part: str
    supervised: Callable[[np.random.Generator], dict[str, Tensor]] | None = None
    most: Callable[[int], int] = int
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def beta(self) -> float:
        return {"image": self.recipe.beta_image, "text": self.recipe.beta_text}[self.part]

    def moves(self, round: Round) -> Moves:
        """The moves of a round as the recipe reads them."""
        recipe, count = self.recipe, len(round.rollout.states)
        places = range(count) if recipe.read_at is None else sorted({int(p * count) for p in recipe.read_at})
        if recipe.estimator != "trajectory" and recipe.read_at is not None:
            places = range(len(recipe.read_at))
        return ESTIMATORS[recipe.estimator](round.rollout, places, round.rng)

    def token_weights(self, round: Round, moves: Moves) -> Tensor | None:
        """(Q, U): structure tokens against refinement."""
        if self.recipe.emphasis == 1:
            return None
        table = o.structure_weights(*round.rollout.entropies(), self.recipe.emphasis)       # (B, S)
        steps = round.rollout.commits()[moves.sample].gather(1, moves.rows).clamp_min(0)    # (Q, U)
        return table[moves.sample].gather(1, steps)

    def kept(self, moves: Moves, weight: Tensor) -> tuple[Moves, Tensor]:
        """Without the moves of weight 0 (Q,), which cost as much as the others. None may be left: a round without a
        difference must not move anything, and Adam would make steps of full size from the rounding errors of a KL
        that is 0. Several processes keep the same number, those that have fewer with moves of weight 0: each backward
        pass is one of all of them."""
        index = weight.nonzero()[:, 0]
        lacking = self.most(len(index)) - len(index)
        index = torch.cat([index, index.new_zeros(lacking)])
        spare = torch.arange(len(index), device=weight.device) >= len(index) - lacking
        return moves.take(index), weight[index].masked_fill(spare, 0)

    def kl(self, log_p: Tensor, moves: Moves, weight: Tensor, beta: float, kind: str) -> Tensor:
        """Sum of beta * KL to the start over the moves whose weight (Q,) is not 0."""
        reference = frozen_log_probabilities(self.reference, moves, len(moves))
        values = o.token_mean(o.k3(log_p, reference), moves.valid)
        self.ledger.note(f"kl_{kind}", values[weight != 0])
        return beta * (values * (weight != 0)).sum()

    def rehearsal(self, rng: np.random.Generator, share: float | None = None) -> Pieces:
        """A supervised batch, so that nothing else is forgotten."""
        share = self.recipe.sft_share if share is None else share
        if self.supervised is not None and share:
            batch = {name: x.to(self.network.device) for name, x in self.supervised(rng).items()}
            loss = self.learner(batch)
            self.ledger.note("sft_loss", loss)
            yield Piece("sft", share * loss, batch["input_ids"])
