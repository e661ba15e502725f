"""How well a preset draws, edits or answers: the oracle of dimoo-tiny's world, with intervals.

Every preset gets the same requests and seeds, so the change against `exact` is bootstrapped over pairs, which is much
tighter than two intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dimoo.bench.journal import Journal
from dimoo.bench.workload import BASELINE
from dimoo.resolve import resolve

PARTS = {"generate": ("t2i", ""), "edit": ("edit", "_preserved"), "ask": ("qa", "")}
"""Task of the benchmark -> part of the evaluation, and how the names of its scores end."""
ROUNDS = 2000


def outcomes(pipeline, task: str, preset: str, count: int, seed: int = 0) -> list[float]:
    """Whether each of `count` requests of every kind came out right; the same requests for every preset."""
    part, ending = PARTS[task]
    measured = resolve("dimoo_training.evaluation:measured", {}, "evaluation")(pipeline, part, count, seed, preset)
    return [float(right) for name, values in measured.items() if name.endswith(ending) for right in values]


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and 95% bootstrap interval."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, len(values), (ROUNDS, len(values)))].mean(1)
    return tuple(round(float(x), 4) for x in (values.mean(), *np.quantile(means, (0.025, 0.975))))


def add_scores(
    rows: Sequence[dict[str, Any]], pipeline, task: str, count: int, log: Callable[[str], Any] = print,
    seeds: int = 1, journal: Journal | None = None,
) -> None:  # fmt: skip
    """Write `score` and `score_change` (against exact), each with `_low` and `_high`, into rows of one task.

    Intervals are over requests, each of which counts with its mean over the seeds. journal: where the outcomes of an
    interrupted run are kept.
    """
    journal = journal or Journal()

    def right(preset: str) -> np.ndarray:
        name = "exact" if preset == BASELINE else preset                        # the same ids in another way
        asked = [(task, name, count, seed) for seed in range(seeds)]
        return np.mean([journal.remember(f"score {one}", partial(outcomes, pipeline, *one)) for one in asked], axis=0)

    exact = right("exact")
    for row in rows:
        values = right(row["preset"])
        for name, each in (("score", values), ("score_change", values - exact)):
            row[name], row[f"{name}_low"], row[f"{name}_high"] = interval(each)
        row["score_count"], row["score_seeds"] = len(values), seeds
        log(f"{task} {row['preset']}: {row['score']:.1%} right, {row['score_change']:+.1%} against exact")
