"""`dimoo bench decode`: text recipes on problems with a checker, and what they take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dimoo.cli.flags import Machine


def decode(
    machine: Machine,
    tasks: Annotated[str, typer.Option(help="Of sudoku, countdown, arithmetic.")] = "sudoku,countdown",
    recipes: Annotated[
        str | None, typer.Option(help="Recipes with commas between them, or all.", show_default="all")
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Measure only what these comparisons need: whole-blocks, whole-blocks-fast, "
                     "log-linear, log-half, eoser, eoser-log, or all."),
    ] = None,
    budgets: Annotated[
        str | None, typer.Option(help="Numbers with commas, instead of each recipe's own.", show_default="its own")
    ] = None,
    baseline: Annotated[str, typer.Option(help="What `same` and `speed` compare with.")] = "llada",
    problems: Annotated[int, typer.Option(help="Problems of each task; never seen in training.")] = 100,
    length: Annotated[
        int | None, typer.Option(help="Masks of an answer.", show_default="the longest right answer, in whole blocks")
    ] = None,
    block_length: Annotated[int, typer.Option(help="Masks of a block, where there are blocks.")] = 8,
    seed: Annotated[int, typer.Option(help="Chooses the problems.")] = 0,
    random: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Time random weights of this size instead: 1m, 100m or 8b.")
    ] = None,
    image: Annotated[int, typer.Option(help="With --random: codes of a picture before the answer.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Also write all numbers to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw accuracy against forwards, as this .png.")] = None,
) -> None:
    """Compare ways to decode text: accuracy, forwards, tokens per second, cache hits."""
    from dimoo.bench.report import write_json
    from dimoo.cli.decode_run import Order, compare_recipes, draw, show

    for name, value in (("--problems", problems), ("--length", length or 1), ("--block-length", block_length)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if image < 0 or (image and random is None):
        raise ValueError(f"--image goes with --random and is 0 or more, got {image}")
    if plot is not None and random is not None:
        raise ValueError("--plot draws accuracy against forwards, and random weights have no right answers")
    given = tuple(map(number, budgets.split(","))) if budgets else None
    order = Order(tasks, recipes, compare, given, baseline, problems, length, block_length, seed, random, image)
    made: dict[str, Any] = compare_recipes(order, machine)
    show(made)
    if json is not None:
        write_json(made, json)
    if plot is not None:
        draw(made, plot)


def number(text: str) -> float:
    """Raises ValueError naming the flag."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"--budgets takes numbers above 0 with commas between them, got {text!r}")
    return value
