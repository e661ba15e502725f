"""Before and after: the same held-out prompts under the same random streams, and what the difference is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dimoo import DiMOOPipeline
from dimoo.tasks import Ask, TextToImage
from dimoo_training.evaluation import committed_facts
from dimoo_training.evaluation.measures import MEASURES, answered
from dimoo_training.evaluation.sitting import Sitting, chunks, read
from dimoo_training.pictures import encode
from dimoo_training.puzzles import PUZZLES
from dimoo_training.rl.judge import FORMS, Judge, right_places
from dimoo_training.rl.recipes import ASCENDING, DRAWING
from dimoo_training.rl.subjects import letters_right
from dimoo_training.world.scene import SIDE_PX

SEEDS = (0, 1, 2, 3)
GREEDY = ASCENDING | {"temperature": 0.0}
EDITED = {"num_inference_steps": 16}

Outcomes = dict[str, np.ndarray]
"""Family -> (prompts, seeds), 0 or 1."""


def drawings(
    pipeline: DiMOOPipeline, per_kind: int | None = None, seeds: Sequence[int] = SEEDS, **settings: Any
) -> tuple[Outcomes, float]:
    """The oracle's verdict on the committed held-out prompts of all families, and the mean forwards a drawing took."""
    pipeline.set_progress_bar_config(disable=True)
    found, forwards = {}, []
    for family, captions in committed_facts(["t2i"], per_kind)["t2i"].items():
        columns = []
        for seed in seeds:
            right: list[float] = []
            for part in chunks(list(enumerate(captions)), 40):
                tasks = [TextToImage(c.text, pipeline.defaults.height, pipeline.defaults.width) for _, c in part]
                made = pipeline.run(tasks, seed=seed, index=part[0][0], **(DRAWING | settings))
                forwards.append(made.forwards)
                right += [float(c.claim.holds(read(p))) for (_, c), p in zip(part, made.images, strict=True)]
            columns.append(right)
        found[family] = np.array(columns).T
    return found, float(np.mean(forwards))


def puzzles(pipeline: DiMOOPipeline, name: str, count: int = 240, seed: int = 0, **settings: Any) -> Outcomes:
    """Whole right answers to held-out problems, greedy, at eight ascending steps."""
    rng = np.random.default_rng([seed, 91])
    problems = [PUZZLES[name].sample(rng, held_out=True) for _ in range(count)]
    right: list[float] = []
    for part in chunks(problems, 40):
        said = pipeline.run([Ask(p.text, length=32) for p in part], seed=seed, **(GREEDY | settings)).texts
        right += [float(PUZZLES[name].right(p, text)) for p, text in zip(part, said, strict=True)]
    return {name: np.array(right)[:, None]}


def questions(pipeline: DiMOOPipeline, per_kind: int | None = None) -> Outcomes:
    """Answers to the committed questions about true pictures, greedy: what must not get worse."""
    sitting = Sitting(pipeline)
    asked = committed_facts(["qa"], per_kind)["qa"]
    return {kind: np.array(answered(sitting, items, [sitting.picture(a.scene) for a in items]))[:, None]
            for kind, items in asked.items()}  # fmt: skip


def reading(pipeline: DiMOOPipeline, per_kind: int | None = None) -> dict[str, float]:
    """How often each way to ask finds the right choice, about true pictures and, after a slash, about none."""
    asked = [item for items in committed_facts(["qa"], per_kind)["qa"].values() for item in items]
    questions, codec = [item.question for item in asked], pipeline.codec
    side = pipeline.defaults.height
    codes = encode(codec.images, [item.scene for item in asked], side // SIDE_PX)
    images = [codec.vocab.lay_out(grid) for grid in codes]
    found = {}
    for ask in FORMS:
        judge = Judge(pipeline.model, codec, ask)
        for name, said in ((ask, judge.probabilities(questions, images)),
                           (f"{ask}/unseen", judge.unseen(questions, *codes.shape[1:]))):  # fmt: skip
            found[name] = float(letters_right(said, right_places(questions))[1].float().mean())
    return found


def edits(pipeline: DiMOOPipeline, per_kind: int | None = None) -> Outcomes:
    """The committed edits, right and with everything else kept: what must not get worse either."""
    scores = MEASURES["edit"](Sitting(pipeline, settings=EDITED), committed_facts(["edit"], per_kind)["edit"])
    return {name: np.array(x)[:, None] for name, x in scores.items() if name.endswith("_preserved")}


@dataclass(frozen=True)
class Difference:
    """Mean of families after minus before, in points, with its 95% interval."""

    mean: float
    low: float
    high: float


def paired(before: Outcomes, after: Outcomes, rounds: int = 4000, seed: int = 0) -> Difference:
    """Paired bootstrap: prompts are drawn again within each family, a prompt with all its seeds, before and after.

    Raises ValueError when the two are not about the same prompts and seeds.
    """
    shapes = [{family: x.shape for family, x in outcomes.items()} for outcomes in (before, after)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"only results on the same prompts and seeds can be paired, got {shapes[0]} and {shapes[1]}")
    rng, again, means = np.random.default_rng(seed), [], []
    for family in before:
        gain = (after[family] - before[family]).mean(1)                         # (prompts,)
        means.append(gain.mean())
        again.append(gain[rng.integers(0, len(gain), (rounds, len(gain)))].mean(1))
    low, high = np.quantile(np.mean(again, axis=0), [0.025, 0.975])
    return Difference(*(round(100 * float(x), 2) for x in (np.mean(means), low, high)))


def summary(outcomes: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Mean by family and over families."""
    means = {family: round(float(x.mean()), 4) for family, x in outcomes.items()}
    return {**means, "mean": round(float(np.mean([x.mean() for x in outcomes.values()])), 4)}
