"""The runs of the published table: Self-GRPO, its controls, its halves, and what is reported beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dimoo_training.rl import recipes as r
from dimoo_training.rl.recipes import RLRecipe
from dimoo_training.rl.subjects import Drawings

BATCH = 25
"""Sequences of a rehearsal batch, about."""


@dataclass(frozen=True)
class Experiment:
    """A row of the table. expected: what the project set out to see. extra: only done when it is named."""

    recipe: Callable[[], RLRecipe]
    expected: str
    seed: int = 0
    puzzle: str | None = None
    extra: bool = False


def cost(recipe: RLRecipe) -> float:
    """Sequences that a round of Self-GRPO sends through the network; one with a gradient counts three."""
    pictures, asked = recipe.prompts * recipe.group, Drawings.count
    rollouts = pictures * recipe.settings["num_inference_steps"]
    judged = pictures * asked + recipe.prompts * (asked + Drawings.spare)
    learned = 4 * pictures * len(recipe.read_at or ())                              # the reference reads them as well
    answers = 5 * pictures / 2 * (recipe.answered or asked)                         # of the better half: read, learned
    return rollouts + judged + learned + answers + 3 * BATCH * bool(recipe.sft_share)


def supervised(recipe: RLRecipe) -> RLRecipe:
    """Continued supervised training with the same optimiser and compute, counted in sequences."""
    return replace(recipe, rule="sft", prompts=1, group=2, sft_batches=round(cost(recipe) / (3 * BATCH)))


def changed(**changes) -> Callable[[], RLRecipe]:
    """Self-GRPO with one thing changed."""
    return lambda: replace(r.self_grpo(), **changes)


RUNS: dict[str, Experiment] = {
    "self-grpo": Experiment(r.self_grpo, "at least +8 points, interval above 0; questions and edits at most 1 lower"),
    "sft": Experiment(lambda: supervised(r.self_grpo()), "the control it must beat"),
    "shuffled": Experiment(changed(shuffled=True), "about 0"),
    "oracle": Experiment(r.oracle, "the upper bound"),
    "self-grpo-1": Experiment(r.self_grpo, "the same from another seed", seed=1),
    "drawing-only": Experiment(changed(answer_share=0.0), "this half alone"),
    "answering-only": Experiment(changed(draw_share=0.0), "this half alone"),
    "hierarchical": Experiment(changed(emphasis=1.5), "reported"),
    "sudoku": Experiment(r.sudoku, "at least +5 points of whole grids at 8 steps", puzzle="sudoku"),
    "grpo": Experiment(r.grpo, "reported", extra=True),
    "live-judge": Experiment(changed(judge="live"), "reported", extra=True),
}  # fmt: skip
"""In the order in which they are done: a table that is not whole yet has what matters most."""
