"""Update rules: what is learned from one round of rollouts. Each is a class of RULES.

`steps(round)` yields the optimiser steps of a round, each a stream of pieces of loss; the run does the backward pass
of every piece and then one update. Pieces are micro-batches whose losses add up, so their size changes nothing.
Everything that needs the policy as it sampled is computed before the first piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dimoo.canvas import Canvas
from dimoo.verify import Reading, reading_row
from dimoo_training.rl import objectives as o
from dimoo_training.rl.context import Context, Ledger, Piece, Pieces, Round
from dimoo_training.rl.judge import Judge, right_places
from dimoo_training.rl.likelihood import frozen_log_probabilities
from dimoo_training.rl.moves import Moves, moves_of
from dimoo_training.rl.rollout import Sampler
from dimoo_training.rl.subjects import grouped, image_part, letters_right


@dataclass
class SelfGRPO:
    """-sum of w_g [likelihood of the picture's tokens + likelihood of its gated answers] + KL, one update a round."""

    context: Context

    def steps(self, round: Round) -> Iterator[Pieces]:
        weights = o.softmax_weights(round.rewards, self.context.recipe.alpha)               # (P, G)
        answers = self.answers(round, weights) if self.context.recipe.answer_share and round.samples.asked else None

        def pieces() -> Pieces:
            if self.context.recipe.draw_share:
                yield from self.draw(round, weights)
            if answers is not None:
                yield from self.answer(*answers)
            yield from self.context.rehearsal(round.rng)

        yield pieces()

    def draw(self, round: Round, weights: Tensor) -> Pieces:
        """The likelihood of the written tokens: mean in U_s, then over steps, softmax-weighted over the group."""
        c, recipe = self.context, self.context.recipe
        moves = c.moves(round)
        each = weights.flatten().to(moves.sample.device)[moves.sample]                      # (Q,)
        each = each / (len(moves) / weights.numel() * len(weights))                         # mean over steps, prompts
        moves, each = c.kept(moves, each)
        token_weights = c.token_weights(round, moves)
        for here, part in parts(moves, recipe.micro_batch):
            log_p = c.learner(part)
            note_gap(c.ledger, log_p, part)
            extra = None if token_weights is None else token_weights[here]
            loss = recipe.draw_share * o.self_grpo(log_p, part.valid, each[here], extra)
            yield Piece(c.part, loss + c.kl(log_p, part, each[here], c.beta, c.part) / len(moves), part.ids)

    def answers(self, round: Round, weights: Tensor) -> tuple[Moves, Tensor]:
        """Moves that say the right choice, and their weights: w_g over the number of a picture's gated answers."""
        c, samples = self.context, round.samples
        every = torch.tensor([k for k, _ in samples.asked])
        open_ = o.gate(weights.flatten()[every] > 0, every, round.rewards)                  # asked of the live model
        some = a_few(open_, every, c.recipe.answered, round.rng)
        owners, images = every[some], [image_part(samples.answers[samples.asked[k][0]]) for k in some]
        asked = [samples.asked[k][1] for k in some]
        judge = replace(samples.judge, network=c.network)
        said = judge.probabilities(asked, images)
        right = letters_right(said, right_places(asked))[1] & open_[some]
        c.ledger.note("answers_kept", right)
        count = torch.bincount(owners[right], minlength=len(samples)).clamp_min(1)
        each = right * weights.flatten()[owners] / count[owners] / len(weights)
        moves = answer_moves(judge, asked, images, c.network.device)
        return c.kept(moves, each.to(moves.sample.device))

    def answer(self, moves: Moves, each: Tensor) -> Pieces:
        c, recipe = self.context, self.context.recipe
        for here, part in parts(moves, recipe.micro_batch):
            log_p = c.learner(part)
            loss = recipe.answer_share * o.self_grpo(log_p, part.valid, each[here])
            kl = c.kl(log_p, part, each[here], recipe.beta_text, "answer")              # of what the model would say
            yield Piece("answer", loss + kl / len(moves), part.ids)


@dataclass
class GRPO:
    """Clipped ratios of group advantages on the moves of the recipe: CJ-GRPO on stored states, UniGRPO on random
    masks, HT-GRPO's weights on top; `inner` updates a round."""

    context: Context

    def steps(self, round: Round) -> Iterator[Pieces]:
        recipe = self.context.recipe
        gains = o.advantages(round.rewards, recipe.scale).flatten()                         # (B,)
        for plan in [self.plan(round, gains) for _ in range(recipe.inner)]:                 # under the sampling policy
            yield self.pieces(round, *plan)

    def plan(self, round: Round, gains: Tensor) -> tuple[Moves, Tensor, Tensor]:
        """Moves, their log-probabilities when sampled, and their advantages over the number of all moves."""
        c = self.context
        moves = c.moves(round)
        gain = gains.to(moves.sample.device)[moves.sample] / len(moves)
        moves, gain = c.kept(moves, gain)
        old = moves.old
        if old is None:
            old = frozen_log_probabilities(c.network, moves, c.recipe.micro_batch)
        return moves, old, gain

    def pieces(self, round: Round, moves: Moves, old: Tensor, gain: Tensor) -> Pieces:
        c, recipe = self.context, self.context.recipe
        token_weights = c.token_weights(round, moves)
        for here, part in parts(moves, recipe.micro_batch):
            log_p = c.learner(part)
            note_gap(c.ledger, log_p, part, old[here])
            extra = None if token_weights is None else token_weights[here]
            losses, clipped = o.grpo(log_p, old[here], part.valid, gain[here], recipe.clip, extra, recipe.level)
            c.ledger.note("clipped", clipped)
            yield Piece(c.part, losses.sum() + c.kl(log_p, part, gain[here], c.beta, c.part) / len(moves), part.ids)
        yield from c.rehearsal(round.rng)


@dataclass
class DPO:
    """Best against worst sample of each group; bounds of policy and start from the same masks (VRPO)."""

    context: Context

    def steps(self, round: Round) -> Iterator[Pieces]:
        yield self.pieces(round)

    def pieces(self, round: Round) -> Pieces:
        c, recipe = self.context, self.context.recipe
        moves = c.moves(round)
        length = round.rollout.canvas.start.sum(1).to(moves.sample.device)                  # (B,)
        pairs = pairs_of(round.rewards, c.most)
        for better, worse, weight in pairs:
            part = moves.take(torch.cat([(moves.sample == k).nonzero()[:, 0] for k in (better, worse)]))
            both = (c.learner(part), frozen_log_probabilities(c.reference, part, len(part)))
            bounds = [o.elbo(log_p, part.valid, length[part.sample]).view(2, -1).mean(1) for log_p in both]
            policy, start = bounds                                              # (2,) each: better, worse
            c.ledger.note("margin", (policy - start)[0] - (policy - start)[1])
            loss = o.dpo(policy[0], start[0], policy[1], start[1], recipe.dpo_beta)
            yield Piece(c.part, weight / len(pairs) * loss, part.ids)
        yield from c.rehearsal(round.rng)


@dataclass
class Supervised:
    """No rollouts count: the control that continues supervised training, an update a batch."""

    context: Context

    def steps(self, round: Round) -> Iterator[Pieces]:
        for _ in range(self.context.recipe.sft_batches):
            yield self.context.rehearsal(round.rng, 1.0)


RULES = {"self-grpo": SelfGRPO, "grpo": GRPO, "dpo": DPO, "sft": Supervised}
"""Name -> rule, built with its context."""


def parts(moves: Moves, size: int) -> Iterator[tuple[slice, Moves]]:
    """Micro-batches, and where they are."""
    for number, part in enumerate(moves.split(size)):
        yield slice(number * size, number * size + len(part)), part


def a_few(open_: Tensor, owners: Tensor, most: int | None, rng: np.random.Generator) -> list[int]:
    """Places where `open_` (n,) holds, at random `most` of each owner (n,); one that is not open when none is, so that
    every process has something to read."""
    found: dict[int, list[int]] = {}
    for k in rng.permutation(open_.nonzero()[:, 0].numpy()).tolist():
        found.setdefault(int(owners[k]), []).append(k)
    return sorted(k for mine in found.values() for k in mine[:most]) or [0]


def note_gap(ledger: Ledger, log_p: Tensor, moves: Moves, old: Tensor | None = None) -> None:
    """Largest |ratio - 1|: below 1e-3 before any update, or the replay is not the rollout."""
    old = moves.old if old is None else old
    if old is not None:
        gap = ((log_p.detach() - old).exp() - 1).abs().masked_fill(~moves.valid, 0)
        ledger.note("ratio_gap_max", gap.amax(1))


def answer_moves(judge: Judge, asked, images, device) -> Moves:
    """One move for each question: the right choice as the first word of the answer."""
    codec, forms = judge.codec, [judge.form(question) for question in asked]
    rows = [reading_row(codec, Reading(text, image)) for (text, _), image in zip(forms, images, strict=True)]
    canvas = Canvas(rows, codec.vocab, [(0, 0)] * len(rows), device)
    first = torch.ones(len(rows), 1, dtype=torch.long, device=device)
    places = right_places(asked).tolist()
    right = torch.tensor([[firsts[place]] for (_, firsts), place in zip(forms, places, strict=True)], device=device)
    alone = torch.ones(1, device=device)
    return moves_of(canvas, ("cond",), canvas.ids, first, first.bool(), right, Sampler(1.0, codec.vocab.mask), alone)


def pairs_of(rewards: Tensor, most: Callable[[int], int] = int) -> list[tuple[int, int, float]]:
    """(better, worse, weight) samples of each group with a difference; a process with fewer than others repeats its
    first with weight 0."""
    differs, places = o.spread(rewards), grouped(torch.arange(rewards.numel()), rewards.shape[1])
    ends = [(int(places[p, row.argmax()]), int(places[p, row.argmin()])) for p, row in enumerate(rewards)]
    found = [(*ends[p], 1.0) for p in differs.nonzero()[:, 0].tolist()]
    return found + [(*ends[0], 0.0)] * (most(len(found)) - len(found))
