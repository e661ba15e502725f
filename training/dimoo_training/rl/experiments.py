"""The published table of Self-GRPO: every run, its controls, and what the drawings are worth afterwards.

    python -m dimoo_training.rl.experiments --model runs/tiny-base/checkpoint

trains each of RUNS on the given checkpoint, measures it on held-out facts under fixed random streams, and writes
results.json, table.md and curves.png. What is finished is not done again, and a run that was killed goes on, so the
command can be repeated until the table is whole. About 15 hours on two cores (estimate: 1.5 hours a run of 240
rounds, ten minutes to measure one); `--only self-grpo sft` does a part, `--iterations 3 --per-kind 2` shows that all
of it runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from dimoo import DiMOOPipeline
from dimoo_training.rl import compare as c
from dimoo_training.rl import recipes as r
from dimoo_training.rl.recipes import RLRecipe
from dimoo_training.rl.rehearsal import MIX, Rehearsal
from dimoo_training.rl.report import draw_curves, write_table
from dimoo_training.rl.train import align

OUT = Path("assets/benchmarks/self_grpo")
TRIES = 8
"""Of a search, whose budget plain drawings get as steps."""


def supervised(recipe: RLRecipe) -> RLRecipe:
    """Continued supervised training with the compute of a Self-GRPO run, counted in sequences through the network.

    A rollout is a forward a step; a gradient costs three forwards; a question is asked by judge and policy.
    """
    pictures = recipe.prompts * recipe.group
    rollouts, asked = pictures * recipe.settings["num_inference_steps"], 2 * pictures * 4
    learned = 4 * pictures * len(recipe.read_at) + 4 * pictures * 4 // 2        # with the reference's forward
    per_batch = 3 * 20                                                          # a batch has 20 sequences or so
    return replace(recipe, rule="sft", prompts=1, group=2, sft_batches=round((rollouts + asked + learned) / per_batch))


@dataclass(frozen=True)
class Experiment:
    """A row of the table. expected: what the project set out to see."""

    recipe: Callable[[], RLRecipe]
    expected: str
    seeds: tuple[int, ...] = (0,)
    puzzle: str | None = None


RUNS: dict[str, Experiment] = {
    "self-grpo": Experiment(r.self_grpo, "at least +8 points, interval above 0", (0, 1)),
    "sft": Experiment(lambda: supervised(r.self_grpo()), "the control it must beat"),
    "shuffled": Experiment(lambda: replace(r.self_grpo(), shuffled=True), "about 0"),
    "oracle": Experiment(r.oracle, "the upper bound"),
    "drawing-only": Experiment(lambda: replace(r.self_grpo(), answer_share=0.0), "this half alone"),
    "answering-only": Experiment(lambda: replace(r.self_grpo(), draw_share=0.0), "this half alone"),
    "hierarchical": Experiment(lambda: replace(r.self_grpo(), emphasis=1.5), "reported"),
    "live-judge": Experiment(lambda: replace(r.self_grpo(), judge="live"), "reported"),
    "grpo": Experiment(r.grpo, "reported"),
    "sudoku": Experiment(r.sudoku, "at least +5 points of whole grids at 8 steps", puzzle="sudoku"),
}  # fmt: skip
SEARCHED = ("self-grpo",)
"""Runs after which search at test time is measured too, as it is before any."""


def measure(pipeline: DiMOOPipeline, experiment: Experiment, per_kind: int | None) -> dict:
    """Outcomes of one model: the main one prompt by prompt, for pairing, and what must not get worse."""
    if experiment.puzzle:
        return {"outcomes": c.puzzles(pipeline, experiment.puzzle, 6 * (per_kind or 40))}
    outcomes, forwards = c.drawings(pipeline, per_kind)
    return {"outcomes": outcomes, "forwards": forwards, "others": c.others(pipeline, per_kind)}


def searches(pipeline: DiMOOPipeline, per_kind: int | None) -> dict:
    """Best-of-N and hierarchical search, and plain drawings of as many steps as the latter has forwards."""
    found = {}
    for method, count in (("hierarchical", TRIES), ("best-of", TRIES // 4), ("best-of", TRIES)):
        outcomes, forwards = c.drawings(pipeline, per_kind, best_of=count, search=method)
        found[f"{method} {count}"] = {"scores": c.summary(outcomes), "forwards": forwards}
    steps = round(found[f"hierarchical {TRIES}"]["forwards"])
    outcomes, forwards = c.drawings(pipeline, per_kind, num_inference_steps=steps)
    found[f"plain, {steps} steps"] = {"scores": c.summary(outcomes), "forwards": forwards}
    return found


def once(path: Path, make: Callable[[], dict]) -> dict:
    """What `make` gives, kept as JSON: made when the file is not there."""
    if not path.exists():
        made = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".part")
        aside.write_text(json.dumps(made, default=lambda x: x.tolist()))
        aside.replace(path)
    return json.loads(path.read_text())


def one(name: str, seed: int, model: str, out: Path, iterations: int | None, per_kind: int | None, log) -> dict:
    """Train and measure one run; returns its row."""
    experiment = RUNS[name]
    folder = out / "runs" / f"{name}-{seed}"
    before = once(out / "runs" / f"before-{experiment.puzzle or 'drawings'}.json",
                  lambda: measure(DiMOOPipeline.from_pretrained(model), experiment, per_kind))  # fmt: skip

    def after() -> dict:
        recipe = replace(experiment.recipe(), seed=seed)
        recipe = recipe if iterations is None else replace(recipe, iterations=iterations)
        pipeline = DiMOOPipeline.from_pretrained(model)
        mix = {"puzzle": 1.0} if experiment.puzzle else MIX
        align(pipeline, recipe, folder, Rehearsal.of(pipeline, out / "runs", mix), log)
        return measure(DiMOOPipeline.from_pretrained(folder / "checkpoint"), experiment, per_kind)

    measured = once(folder / "after.json", after)
    outcomes = [{family: np.array(x) for family, x in m["outcomes"].items()} for m in (before, measured)]
    return {
        "run": name, "seed": seed, "expected": experiment.expected, "before": c.summary(outcomes[0]),
        "after": c.summary(outcomes[1]), "difference": asdict(c.paired(*outcomes)),
        "others_before": before.get("others", {}), "others_after": measured.get("others", {}),
    }  # fmt: skip


def main(given: list[str] | None = None) -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--model", required=True, help="the checkpoint to start from")
    asked.add_argument("--out", type=Path, default=OUT)
    asked.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    asked.add_argument("--iterations", type=int, help="rounds of each run (default: the recipe's)")
    asked.add_argument("--per-kind", type=int, help="held-out prompts a family (default: all 40)")
    args = asked.parse_args(given)
    rows = []
    for name in args.only:
        for seed in RUNS[name].seeds:
            rows.append(one(name, seed, args.model, args.out, args.iterations, args.per_kind, print))
            print(f"{name} seed {seed}: {rows[-1]['difference']}", flush=True)
    before = once(args.out / "runs" / "search-before.json",
                  lambda: searches(DiMOOPipeline.from_pretrained(args.model), args.per_kind))  # fmt: skip
    search = {"before": before}
    for name in (name for name in SEARCHED if name in args.only):
        trained = args.out / "runs" / f"{name}-0" / "checkpoint"
        search[f"after {name}"] = once(args.out / "runs" / f"search-{name}.json",
                                       lambda folder=trained: searches(DiMOOPipeline.from_pretrained(folder),
                                                                       args.per_kind))  # fmt: skip
    write_table(args.out, args.model, rows, search)
    draw_curves(args.out)


if __name__ == "__main__":
    main()
