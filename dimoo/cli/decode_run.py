"""One run of `dimoo bench decode`: problems are posed, recipes answer them, the result is shown."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from dimoo import __version__
from dimoo.bench.decode import Problem, compare, random_model, random_problems, scores
from dimoo.cli import console
from dimoo.cli.extras import reach
from dimoo.cli.flags import Machine
from dimoo.cli.session import DTYPES, find_device, load
from dimoo.recipes import RECIPES, Recipe
from dimoo.resolve import resolve
from dimoo.settings import Defaults
from dimoo.tasks import Codec
from dimoo.tasks.text import Text, within

COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "recipe": lambda row: row["recipe"],
    "budget": lambda row: f"{row['budget']:g}",
    "right (95%)": lambda row: "" if row["accuracy"] is None else share(row["accuracy"], *row["interval"]),
    "forwards": lambda row: f"{row['forwards']:.1f}",
    "tok/fwd": lambda row: f"{row['tokens_per_forward']:.2f}",
    "tok/s": lambda row: f"{row['tokens_per_second']:.0f}",
    "cached": lambda row: f"{row['hits']:.0%}",
    "same": lambda row: "" if row["same"] is None else f"{row['same']:.0%}",
    "speed": lambda row: "" if row["speed"] is None else f"{row['speed']:.2f}x",
}
"""Heading -> what stands under it; narrow enough for 80 columns."""


def share(accuracy: float, low: float, high: float) -> str:
    return f"{accuracy:.0%} ({100 * low:.0f}-{100 * high:.0f})"


@dataclass(frozen=True)
class Order:
    """What was asked for; see `dimoo.cli.bench_decode`."""

    tasks: str
    recipes: str
    budgets: tuple[float, ...] | None
    baseline: str
    problems: int
    length: int | None
    block_length: int
    seed: int
    random: str | None
    image: int

    def chosen(self) -> dict[str, Recipe]:
        """The recipes, the baseline first. Raises ValueError for a name that is none."""
        names = list(RECIPES) if self.recipes == "all" else [name.strip() for name in self.recipes.split(",")]
        names = list(dict.fromkeys([self.baseline, *names]))
        return {name: resolve(name, RECIPES, "recipe") for name in names}


def compare_recipes(order: Order, machine: Machine) -> dict[str, Any]:
    """All scores, with the machine and the settings they were made with."""
    recipes = order.chosen()
    made: dict[str, Any] = {"dimoo": __version__, "order": asdict(order), "machine": platform.machine(),
                            "threads": torch.get_num_threads(), "torch": torch.__version__, "tasks": {}}  # fmt: skip
    if order.random is not None:
        device = find_device(machine.device or "auto")
        model, vocab = random_model(order.random, device, getattr(torch, machine.dtype or DTYPES[device.type]))
        posed = {"random": random_problems(vocab, order.problems, order.image, order.length or 256)}
        defaults, source = Defaults(), {"model": f"random {order.random}"}
    else:
        puzzles = reach("dimoo_training.puzzles:PUZZLES", "train")
        session = load(machine)
        pipeline, source = session.pipeline, session.parameters()
        device, model = pipeline._execution_device, pipeline.model
        vocab, defaults = pipeline.codec.vocab, pipeline.defaults
        names = [name.strip() for name in order.tasks.split(",")]
        posed = {name: pose(resolve(name, puzzles, "task"), pipeline.codec, order) for name in names}
    made |= source | {"device": str(device)}
    for task, problems in posed.items():
        total = sum(len(order.budgets or recipe.budgets) for recipe in recipes.values())
        with console.progress(task, total) as advance:
            found = []
            for score in scores(model, vocab, problems, recipes, defaults, order.block_length, device, order.budgets):
                found.append(score)
                advance()
        compare(found, order.baseline)
        made["tasks"][task] = [score.row() for score in found]
    return made


def pose(puzzle, codec: Codec, order: Order) -> list[Problem]:
    """Held-out problems of a puzzle, as rows with their checker."""
    import numpy as np

    rng = np.random.default_rng(order.seed)
    given = [puzzle.sample(rng, True) for _ in range(order.problems)]
    length = order.length or 1 + max(len(codec.text.encode(problem.answer)) for problem in given)

    def checker(problem):
        return lambda ids: bool(puzzle.right(problem, codec.text.decode(within(codec, ids))))

    return [Problem(Text(problem.text, length).prepare(codec), checker(problem)) for problem in given]


def show(made: dict[str, Any]) -> None:
    """A table for each task."""
    for task, rows in made["tasks"].items():
        cells = [[write(row) for write in COLUMNS.values()] for row in rows]
        console.table(f"{task}, {made['model']} on {made['device']}", list(COLUMNS), cells)


def draw(made: dict[str, Any], path: Path) -> None:
    """Accuracy against forwards, one panel a task, one line a recipe."""
    figure = reach("matplotlib.figure:Figure", "train")(figsize=(7 * len(made["tasks"]), 5), layout="constrained")
    panels = figure.subplots(1, len(made["tasks"]), squeeze=False)[0]
    for panel, (task, rows) in zip(panels, made["tasks"].items(), strict=True):
        for number, name in enumerate(dict.fromkeys(row["recipe"] for row in rows)):
            line(panel, [row for row in rows if row["recipe"] == name and row["accuracy"] is not None], name, number)
        panel.set(title=task, xlabel="forwards for an answer", ylabel="answered right")
        panel.set(xscale="log", ylim=(-0.02, 1.02))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("{x:g}")
        panel.grid(alpha=0.3)
    panels[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    aside = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(aside, format="png", dpi=120)
    aside.replace(path)


def line(panel, rows: Sequence[dict[str, Any]], name: str, number: int) -> None:
    ordered = sorted(rows, key=lambda row: row["forwards"])
    markers = "osD^v<>PX*"
    panel.plot([row["forwards"] for row in ordered], [row["accuracy"] for row in ordered], label=name, alpha=0.8,
               marker=markers[number % len(markers)], markersize=4, linewidth=1)  # fmt: skip
