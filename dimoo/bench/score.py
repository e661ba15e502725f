"""How well a preset draws, edits or answers: the oracle of dimoo-tiny's world, with intervals.

Every preset gets the same requests and seeds, so the change against `exact` is bootstrapped over pairs, which is much
tighter than two intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dimoo.bench.workload import BASELINE
from dimoo.resolve import resolve

PARTS = {"generate": ("t2i", ""), "edit": ("edit", "_preserved"), "ask": ("qa", "")}
"""Task of the benchmark -> part of the evaluation, and how the names of its scores end."""
ROUNDS = 2000


def outcomes(pipeline, task: str, preset: str, count: int, seed: int = 0) -> np.ndarray:
    """Whether each of `count` requests of every kind came out right; the same requests for every preset."""
    part, ending = PARTS[task]
    measured = resolve("dimoo_training.evaluation:measured", {}, "evaluation")(pipeline, part, count, seed, preset)
    return np.concatenate([np.asarray(right) for name, right in measured.items() if name.endswith(ending)])


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and 95% bootstrap interval."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, len(values), (ROUNDS, len(values)))].mean(1)
    return tuple(round(float(x), 4) for x in (values.mean(), *np.quantile(means, (0.025, 0.975))))


def add_scores(
    rows: Sequence[dict[str, Any]], pipeline, task: str, count: int, log: Callable[[str], Any] = print
) -> None:
    """Write `score` and `score_change` (against exact), each with `_low` and `_high`, into rows of one task."""
    exact = outcomes(pipeline, task, "exact", count)
    for row in rows:
        same = row["preset"] in (BASELINE, "exact")                             # the same ids in another way
        right = exact if same else outcomes(pipeline, task, row["preset"], count)
        for name, values in (("score", right), ("score_change", right - exact)):
            row[name], row[f"{name}_low"], row[f"{name}_high"] = interval(values)
        row["score_count"] = len(right)
        log(f"{task} {row['preset']}: {row['score']:.1%} right, {row['score_change']:+.1%} against exact")
