"""What the scores of `dimoo.bench.decode` say: named comparisons, problem by problem, and what parallel decoding saves.

Rows are those of `Score.row`, by task. Both sides of a comparison answered the same problems, so the interval of their
difference is bootstrapped over problems, which is much tighter than two intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dimoo.recipes import COMPARISONS, RECIPES, Comparison

Rows = Sequence[Mapping[str, Any]]
ROUNDS = 2000
PLANNING, ARITHMETIC = "planning", "arithmetic"
KINDS = {"sudoku": PLANNING, "countdown": ARITHMETIC, "arithmetic": ARITHMETIC}
"""Task -> its kind. The cells of a Sudoku can be filled in any order, the two sums of a Countdown follow on each other;
Yang et al. (2025) count both as planning."""


def plan(
    recipes: Sequence[str], budgets: Sequence[float] | None, comparisons: Sequence[str]
) -> list[tuple[str, float]]:
    """What has to be measured, each (recipe, budget) once: recipes at `budgets` or their own, and both sides of each
    comparison."""
    wanted = [(name, budget) for name in recipes for budget in budgets or RECIPES[name].budgets]
    for name in comparisons:
        wanted += [COMPARISONS[name].first, COMPARISONS[name].second]
    return list(dict.fromkeys(wanted))


def compared(tasks: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """Every comparison whose sides were measured: for each task, and planning minus arithmetic."""
    found = []
    for name, comparison in COMPARISONS.items():
        gaps = {task: gap for task, rows in tasks.items() if (gap := differences(rows, comparison)) is not None}
        for task, gap in gaps.items():
            found.append(entry(name, task, gap.mean(), resampled(gap)))
        sides = [[gap for task, gap in gaps.items() if KINDS.get(task) == kind] for kind in (PLANNING, ARITHMETIC)]
        if all(sides):
            planning, arithmetic = (np.concatenate(side) for side in sides)
            means = resampled(planning) - resampled(arithmetic, seed=1)
            gap = planning.mean() - arithmetic.mean()
            found.append(entry(name, f"{PLANNING} minus {ARITHMETIC}", gap, means))
    return found


def entry(name: str, task: str, gap: float, means: np.ndarray) -> dict[str, Any]:
    comparison = COMPARISONS[name]
    low, high = np.quantile(means, (0.025, 0.975))
    return {
        "comparison": name, "question": comparison.question, "first": comparison.first, "second": comparison.second,
        "task": task, "difference": float(gap), "interval": (float(low), float(high)),
    }  # fmt: skip


def differences(rows: Rows, comparison: Comparison) -> np.ndarray | None:
    """First minus second, problem by problem in {-1, 0, 1}; None where a side was not measured."""
    sides = [find(rows, *side) for side in (comparison.first, comparison.second)]
    if any(side is None or side["right"] is None for side in sides):
        return None
    first, second = (np.asarray(side["right"], dtype=float) for side in sides)
    return first - second


def resampled(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """(ROUNDS,) means of problems drawn again with replacement."""
    return values[np.random.default_rng(seed).integers(0, len(values), (ROUNDS, len(values)))].mean(1)


def find(rows: Rows, recipe: str, budget: float) -> Mapping[str, Any] | None:
    return next((row for row in rows if (row["recipe"], row["budget"]) == (recipe, budget)), None)


def savings(rows: Rows, baseline: str, points: float = 0.01) -> dict[str, Any] | None:
    """The row of fewest forwards whose accuracy is at most `points` below the baseline's most careful one."""
    told = [row for row in rows if row["accuracy"] is not None]
    plain = max((row for row in told if row["recipe"] == baseline), key=by("budget"), default=None)
    if plain is None:
        return None
    best = min((row for row in told if row["accuracy"] >= plain["accuracy"] - points - 1e-9), key=by("forwards"))
    kept = ("recipe", "budget", "accuracy", "interval", "forwards")
    return {
        "best": {name: best[name] for name in kept}, "baseline": {name: plain[name] for name in kept},
        "fewer": plain["forwards"] / best["forwards"],
    }  # fmt: skip


def by(name: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda row: row[name]


def family(recipe: str) -> str:
    """What kind of decoding a recipe is, for colours."""
    settings = RECIPES[recipe].settings
    if settings.keys() & {"remask", "editing"}:
        return "takes tokens back"
    rule = str(settings.get("rule", "quota")).partition("(")[0]
    certain = rule not in ("quota", "random")
    whole = settings.get("windows") == "whole"
    return f"{'by certainty' if certain else 'by schedule'}, {'all at once' if whole else 'in blocks'}"
