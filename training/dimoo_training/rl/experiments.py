"""The published table of Self-GRPO: every run, its controls, and what search at test time is worth before and after.

    python -m dimoo_training.rl.experiments --model runs/tiny-base/checkpoint

measures the checkpoint, trains and measures each of RUNS (rl/runs.py) from it on held-out facts under fixed random
streams, and searches. results.json, table.md and curves.png are written anew after each of them. What is finished is
not done again, and a run that was killed goes on, so the command can be repeated until the table is whole.
`--only self-grpo sft` does a part, `--only base` the measurement alone (does the checkpoint leave room?), `--only
search` the search; `--iterations 3 --per-kind 2` shows that all of it runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from dimoo import DiMOOPipeline
from dimoo.verify import facts
from dimoo_training.evaluation import committed_facts
from dimoo_training.rl import compare as c
from dimoo_training.rl.recipes import DRAWING
from dimoo_training.rl.rehearsal import MIX, Rehearsal
from dimoo_training.rl.report import draw_curves, write_table
from dimoo_training.rl.runs import RUNS
from dimoo_training.rl.train import align

OUT, WORK = Path("assets/benchmarks/self_grpo"), Path("runs/experiments")
TRIES = 8
"""Of hierarchical search; best-of and plain drawings get as many forwards."""
ROOM = (0.55, 0.75)
"""Share of right drawings from which an improvement can be seen."""
SEARCHED = ("base", "self-grpo")

Outcomes = dict[str, c.Outcomes]
"""Main or secondary outcome -> family -> values, before or after."""


@dataclass(frozen=True)
class Place:
    """Where one table is made, and how large: None is the published size. out: what is published, work: the runs."""

    model: str
    out: Path
    work: Path
    iterations: int | None = None
    per_kind: int | None = None
    log: Callable[[str], None] = print

    def run(self, name: str) -> Path:
        return self.work / name

    def before(self, puzzle: str | None) -> Outcomes:
        """What the checkpoint at the start can do."""
        return measured(self.run("base") / f"{puzzle or 'drawings'}.json", lambda: measure(self, self.model, puzzle))


def measure(place: Place, model: str | Path, puzzle: str | None) -> Outcomes:
    """Outcomes of one model: `main` is what the run is for, the others are what must not get worse."""
    pipeline, few = DiMOOPipeline.from_pretrained(model), place.per_kind
    if puzzle:
        return {"main": c.puzzles(pipeline, puzzle, 6 * (few or 40))}
    return {
        "main": c.drawings(pipeline, few)[0], "questions": c.questions(pipeline, few), "edits": c.edits(pipeline, few),
    }  # fmt: skip


def searches(place: Place, model: str | Path) -> dict:
    """Drawings by hierarchical search, and best-of and plain ones with as many forwards; one stream a prompt."""
    pipeline, found = DiMOOPipeline.from_pretrained(model), {}

    def draw(label: str, **settings) -> float:
        outcomes, forwards = c.drawings(pipeline, place.per_kind, seeds=(0,), **settings)
        found[label] = {"scores": c.summary(outcomes), "forwards": forwards}
        place.log(f"{model}: {label}: {found[label]['scores']['mean']:.1%} with {forwards:.0f} forwards")
        return forwards

    steps = DRAWING["num_inference_steps"]
    draw(f"none, {steps} steps")
    budget = draw(f"hierarchical, {TRIES} tries", best_of=TRIES, search="hierarchical")
    asked = [len(facts(caption.text)) for family in committed_facts(["t2i"])["t2i"].values() for caption in family]
    tries = max(2, round(budget / (steps + float(np.mean(asked)))))
    draw(f"best of {tries}", best_of=tries)
    cells = pipeline.defaults.height * pipeline.defaults.width // pipeline.codec.images.ratio**2
    draw("none, as many steps", num_inference_steps=min(round(budget), cells))
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


def measured(path: Path, make: Callable[[], Outcomes]) -> Outcomes:
    """Outcomes, made once."""
    kept = once(path, make)
    return {part: {family: np.array(x) for family, x in families.items()} for part, families in kept.items()}


def train(place: Place, name: str) -> None:
    """One run of the table, trained and measured."""
    experiment, folder = RUNS[name], place.run(name)
    place.before(experiment.puzzle)

    def after() -> Outcomes:
        recipe = replace(experiment.recipe(), seed=experiment.seed)
        recipe = recipe if place.iterations is None else replace(recipe, iterations=place.iterations)
        pipeline = DiMOOPipeline.from_pretrained(place.model)
        mix = {"puzzle": 1.0} if experiment.puzzle else MIX
        align(pipeline, recipe, folder, Rehearsal.of(pipeline, place.work, mix), place.log)
        return measure(place, folder / "checkpoint", experiment.puzzle)

    measured(folder / "after.json", after)


def rows(place: Place) -> list[dict]:
    """A row for each run: what is measured is compared, the rest says that it is not."""
    made = []
    for name, experiment in RUNS.items():
        row = {"run": name, "expected": experiment.expected}
        done = place.run(name) / "after.json"
        if done.exists():
            before, after = place.before(experiment.puzzle), measured(done, dict)
            row |= {"before": c.summary(before["main"]), "after": c.summary(after["main"])}
            row["difference"] = {part: vars(c.paired(before[part], after[part])) for part in after}
        if done.exists() or not experiment.extra:
            made.append(row)
    return made


def search(place: Place) -> None:
    """Search with every model of SEARCHED that is there."""
    for name in SEARCHED:
        model = place.model if name == "base" else place.run(name) / "checkpoint"
        if name == "base" or (place.run(name) / "after.json").exists():
            once(place.run(name) / "search.json", lambda model=model: searches(place, model))


def publish(place: Place) -> None:
    """The files of the table, from what there is."""
    found = {name: place.run(name) / "search.json" for name in SEARCHED}
    made = {name: json.loads(path.read_text()) for name, path in found.items() if path.exists()}
    judge = place.run("base") / "judge.json"
    write_table(place.out, place.model, rows(place), made, json.loads(judge.read_text()) if judge.exists() else {})
    draw_curves(place.out, {name: place.run(name) / "log.jsonl" for name in RUNS})


def base(place: Place) -> None:
    """Whether there is room, and whether the start sees enough to judge: says so, and goes on."""
    mean = c.summary(place.before(None)["main"])["mean"]
    place.log(f"the start draws {mean:.1%} right" + ("" if ROOM[0] <= mean <= ROOM[1] else
              f", which is not in {ROOM[0]:.0%} to {ROOM[1]:.0%}: a gain may be hard to see"))  # fmt: skip
    said = once(place.run("base") / "judge.json",
                lambda: c.reading(DiMOOPipeline.from_pretrained(place.model), place.per_kind))  # fmt: skip
    place.log("right choices, asked by: " + ", ".join(f"{name} {share:.1%}" for name, share in said.items()))


def main(given: list[str] | None = None) -> None:
    steps = {"base": base, **{name: lambda place, name=name: train(place, name) for name in RUNS}, "search": search}
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--model", required=True, help="the checkpoint to start from")
    asked.add_argument("--out", type=Path, default=OUT, help=f"of table, numbers and curves (default: {OUT})")
    asked.add_argument("--work", type=Path, default=WORK, help=f"of the runs (default: {WORK})")
    asked.add_argument("--only", nargs="+", choices=steps, metavar="NAME", help=f"some of: {', '.join(steps)}",
                       default=[name for name in steps if name not in RUNS or not RUNS[name].extra])  # fmt: skip
    asked.add_argument("--iterations", type=int, help="rounds of each run (default: the recipe's)")
    asked.add_argument("--per-kind", type=int, help="held-out prompts a family (default: all 40)")
    args = asked.parse_args(given)
    say = partial(print, flush=True)
    place = Place(args.model, args.out, args.work, args.iterations, args.per_kind, say)
    for name in args.only:
        place.log(f"--- {name}")
        steps[name](place)
        publish(place)


if __name__ == "__main__":
    main()
