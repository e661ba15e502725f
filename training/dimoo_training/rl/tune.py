"""Which settings learn: short runs from one checkpoint that differ in one field of a recipe.

    python -m dimoo_training.rl.tune --model runs/tiny-base/checkpoint --vary lr 5e-5 1e-4 2e-4 --iterations 40

About five minutes a value on two cores. Nothing is measured beside the rollouts: the table compares the last third of
the rounds with the first, in points, with twice the standard error of that. Runs are kept and go on like any other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from dimoo import DiMOOPipeline
from dimoo.resolve import resolve
from dimoo_training.rl.recipes import RECIPES, RLRecipe
from dimoo_training.rl.rehearsal import Rehearsal
from dimoo_training.rl.report import read_log
from dimoo_training.rl.train import align

RISING = ("reward", "oracle", "solved")
MEANS = ("ties", "oracle_auc", "solved_auc", "answers_kept", "kl_image", "kl_text", "grad_norm")
PHASES = ("seconds/rollout", "seconds/reward", "seconds/update")


def summary(entries: Sequence[dict[str, float]]) -> dict[str, str]:
    """What a short run showed: how much its rewards rose, means of the last third, seconds a round."""
    third = max(1, len(entries) // 3)
    first, last = entries[:third], entries[-third:]
    told = {name: rise(first, last, name) for name in RISING if name in last[-1]}
    for name in MEANS:
        if values := [entry[name] for entry in last if name in entry]:
            told[name] = f"{np.mean(values):.3f}"
    told["seconds"] = f"{np.mean([sum(entry[name] for name in PHASES) for entry in entries]):.1f}"
    return told


def rise(first: Sequence[dict[str, float]], last: Sequence[dict[str, float]], name: str) -> str:
    """Points from the first rounds to the last, and twice its standard error."""
    before, after = (np.array([entry[name] for entry in part]) for part in (first, last))
    error = np.sqrt(before.var() / len(before) + after.var() / len(after))
    return f"{100 * (after.mean() - before.mean()):+.1f} ± {200 * error:.1f}"


def tune(
    model: str, recipe: RLRecipe, field: str, values: Sequence[Any], work: Path, log: Callable[[str], None] = print
) -> list[dict[str, str]]:
    """A row for each value. Raises ValueError for a field that recipes do not have."""
    known = [f.name for f in fields(RLRecipe)]
    if field not in known:
        raise ValueError(f"recipes have no {field!r}; there is: {', '.join(known)}")
    rows = []
    for value in values:
        name = "".join(c if c.isalnum() or c in ".-" else "_" for c in f"{field}-{value}")
        chosen = replace(recipe, **{field: value})
        pipeline = DiMOOPipeline.from_pretrained(model)
        rehearsal = Rehearsal.of(pipeline, work) if chosen.sft_share or chosen.rule == "sft" else None
        align(pipeline, chosen, work / name, rehearsal, lambda words: None)
        rows.append({field: str(value)} | summary(read_log(work / name / "log.jsonl")))
        log("  ".join(f"{key} {said}" for key, said in rows[-1].items()))
    return rows


def read(value: str) -> Any:
    """A number, a list or a dictionary as JSON; else the word itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def main(given: list[str] | None = None) -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--model", required=True, help="the checkpoint to start from")
    asked.add_argument("--rule", choices=RECIPES, default="self-grpo")
    asked.add_argument("--recipe", default="tiny", help="of that command")
    asked.add_argument("--vary", nargs="+", required=True, metavar=("FIELD", "VALUE"), help="a field and its values")
    asked.add_argument("--iterations", type=int, default=40)
    asked.add_argument("--work", type=Path, default=Path("runs/tune"))
    args = asked.parse_args(given)
    recipe = replace(resolve(args.recipe, RECIPES[args.rule], "recipe")(), iterations=args.iterations)
    field, *values = args.vary
    tune(args.model, recipe, field, [read(value) for value in values], args.work)


if __name__ == "__main__":
    main()
