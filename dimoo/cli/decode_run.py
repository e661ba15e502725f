"""One run of `dimoo bench decode`: problems are posed, recipes answer them, the result is shown."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from dimoo import __version__
from dimoo.bench.compare import compared, plan, savings
from dimoo.bench.decode import Problem, against, random_problems, scores
from dimoo.bench.workload import random_model, random_vocab
from dimoo.blocks import LeftToRight
from dimoo.cli import console
from dimoo.cli.extras import reach
from dimoo.cli.flags import Machine
from dimoo.cli.session import load, placed
from dimoo.recipes import COMPARISONS, RECIPES
from dimoo.resolve import choices, resolve
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
COMPARED: dict[str, Callable[[dict[str, Any]], str]] = {
    "first": lambda entry: f"{entry['first'][0]} {entry['first'][1]:g}",
    "second": lambda entry: f"{entry['second'][0]} {entry['second'][1]:g}",
    "task": lambda entry: entry["task"],
    "points (95%)": lambda entry: "{:+.0f} ({:+.0f} to {:+.0f})".format(
        *(100 * value for value in (entry["difference"], *entry["interval"]))
    ),
}


def share(accuracy: float, low: float, high: float) -> str:
    return f"{accuracy:.0%} ({100 * low:.0f}-{100 * high:.0f})"


@dataclass(frozen=True)
class Order:
    """What was asked for; see `dimoo.cli.bench_decode`."""

    tasks: str
    recipes: str | None
    comparisons: str | None
    budgets: tuple[float, ...] | None
    baseline: str
    problems: int
    length: int | None
    block_length: int
    seed: int
    random: str | None
    image: int

    def plan(self) -> list[tuple[str, float]]:
        """What is measured, (recipe, budget), the baseline first. Raises ValueError for a name that is none."""
        pairs = listed(self.comparisons, COMPARISONS, "comparison") if self.comparisons else []
        names = listed(self.recipes or "all", RECIPES, "recipe") if self.recipes or not pairs else []
        return plan([self.baseline, *names], self.budgets, pairs) if names else plan([], None, pairs)

    def masks(self, longest: int) -> int:
        """Masks of an answer. Raises ValueError for a length that does not divide into blocks."""
        if self.length is None:
            return -(-longest // self.block_length) * self.block_length
        LeftToRight(block_length=self.block_length).check(self.length)
        return self.length


def listed(names: str, table: Mapping[str, Any], kind: str) -> list[str]:
    """Keys of a table, given with commas between them, or all. Raises ValueError for one that is none."""
    given = list(table) if names == "all" else [name.strip() for name in names.split(",")]
    if unknown := [name for name in given if name not in table]:
        raise ValueError(f"unknown {kind} {unknown[0]!r}{choices(unknown[0], table)}")
    return given


def compare_recipes(order: Order, machine: Machine) -> dict[str, Any]:
    """All scores, with the machine and the settings they were made with."""
    wanted = order.plan()
    made: dict[str, Any] = {"dimoo": __version__, "order": asdict(order), "machine": platform.machine(),
                            "threads": torch.get_num_threads(), "torch": torch.__version__, "tasks": {}}  # fmt: skip
    if order.random is not None:
        device, dtype = placed(machine)
        model = random_model(order.random, device, getattr(torch, dtype))
        vocab = random_vocab(model.config)
        posed = {"random": random_problems(vocab, order.problems, order.image, order.masks(256))}
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
        with console.countdown(task, len(wanted)) as tell:
            found = []
            for score in scores(model, vocab, problems, wanted, defaults, order.block_length, device):
                found.append(score)
                tell(len(found))
        against(found, order.baseline)
        made["tasks"][task] = [score.row() for score in found]
    saved = {task: savings(rows, order.baseline) for task, rows in made["tasks"].items()}
    return made | {"comparisons": compared(made["tasks"]), "savings": saved}


def pose(puzzle, codec: Codec, order: Order) -> list[Problem]:
    """Held-out problems of a puzzle, as rows with their checker."""
    import numpy as np

    rng = np.random.default_rng(order.seed)
    given = [puzzle.sample(rng, True) for _ in range(order.problems)]
    length = order.masks(1 + max(len(codec.text.encode(problem.answer)) for problem in given))

    def checker(problem):
        return lambda ids: bool(puzzle.right(problem, codec.text.decode(within(codec, ids))))

    return [Problem(Text(problem.text, length).prepare(codec), checker(problem)) for problem in given]


def show(made: dict[str, Any]) -> None:
    """A table for each task, what parallel decoding saves there, and the comparisons."""
    for task, rows in made["tasks"].items():
        cells = [[write(row) for write in COLUMNS.values()] for row in rows]
        console.table(f"{task}, {made['model']} on {made['device']}", list(COLUMNS), cells)
        if saved := made["savings"][task]:
            console.say(spare(saved))
    if made["comparisons"]:
        cells = [[write(entry) for write in COMPARED.values()] for entry in made["comparisons"]]
        console.table("the same problems, answered in two ways", list(COMPARED), cells)


def spare(saved: dict[str, Any]) -> str:
    best, plain = saved["best"], saved["baseline"]
    return (
        f"{best['recipe']} {best['budget']:g} takes {saved['fewer']:.1f} times fewer forwards than "
        f"{plain['recipe']} {plain['budget']:g} ({best['forwards']:.1f} for {plain['forwards']:.1f}) and is right "
        f"{100 * (best['accuracy'] - plain['accuracy']):+.0f} points"
    )


def draw(made: dict[str, Any], path: Path) -> None:
    """Accuracy against forwards, and the comparisons."""
    from dimoo.bench.decode_plot import plot_decoding

    plot_decoding(made, path)
