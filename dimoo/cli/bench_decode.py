"""`dimoo bench decode`: text recipes on problems with a checker, and what they take."""

from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated, Any

import typer

from dimoo.cli.flags import Machine


def decode(
    machine: Machine,
    tasks: Annotated[str, typer.Option(help="Of sudoku, countdown, arithmetic.")] = "sudoku,countdown",
    recipes: Annotated[str, typer.Option(help="Recipes with commas between them, or all.")] = "all",
    budgets: Annotated[
        str | None, typer.Option(help="Numbers with commas, instead of each recipe's own.", show_default="its own")
    ] = None,
    baseline: Annotated[str, typer.Option(help="What `same` and `speed` compare with.")] = "llada",
    problems: Annotated[int, typer.Option(help="Problems of each task; never seen in training.")] = 100,
    length: Annotated[
        int | None, typer.Option(help="Masks of an answer.", show_default="the longest right answer and its end")
    ] = None,
    block_length: Annotated[int, typer.Option(help="Masks of a block, where there are blocks.")] = 8,
    seed: Annotated[int, typer.Option(help="Chooses the problems.")] = 0,
    random: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Time random weights of this size instead: 1m or 100m.")
    ] = None,
    image: Annotated[int, typer.Option(help="With --random: codes of a picture before the answer.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Also write all numbers to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw accuracy against forwards, as this .png.")] = None,
) -> None:
    """Compare ways to decode text: accuracy, forwards, tokens per second, cache hits."""
    from dimoo.cli.decode_run import Order, compare_recipes, draw, show

    for name, value in (("--problems", problems), ("--length", length or 1), ("--block-length", block_length)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if image < 0 or (image and random is None):
        raise ValueError(f"--image goes with --random and is 0 or more, got {image}")
    given = tuple(map(number, budgets.split(","))) if budgets else None
    order = Order(tasks, recipes, given, baseline, problems, length, block_length, seed, random, image)
    made: dict[str, Any] = compare_recipes(order, machine)
    show(made)
    if json is not None:
        json.parent.mkdir(parents=True, exist_ok=True)
        aside = json.with_name(json.name + ".part")
        aside.write_text(js.dumps(made, indent=2) + "\n", "utf-8")
        aside.replace(json)
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
