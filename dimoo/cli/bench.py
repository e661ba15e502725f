"""`dimoo bench`: how fast, at which quality."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from dimoo.cli.bench_decode import decode
from dimoo.cli.flags import Machine, grouped

bench = typer.Typer(invoke_without_command=True)


@bench.callback()
@grouped
def show(
    context: typer.Context,
    machine: Machine,
    task: Annotated[str, typer.Option(help="generate, edit or ask.")] = "generate",
    grid: Annotated[str, typer.Option(metavar="HxW", help="Codes of the picture.")] = "8x8",
    steps: Annotated[int, typer.Option(help="Denoising steps.")] = 64,
    batch: Annotated[int, typer.Option(help="Requests at once.")] = 1,
    presets: Annotated[
        str, typer.Option(help="What to compare: plain, exact, published, balanced, fast, or single policies.")
    ] = "exact,published,balanced,fast",
    baseline: Annotated[
        str | None, typer.Option(help="Measured first; plain does what the published loop does.")
    ] = "plain",
    random: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Random weights instead of a model: 1m, 100m or 8b.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Runs of each.")] = 3,
    measured_steps: Annotated[
        int | None, typer.Option(help="Run fewer steps and scale by the FLOPs of all.", show_default="all")
    ] = None,
    score: Annotated[
        int, typer.Option(help="Samples of each kind for the oracle's score of dimoo-tiny; 0: none.")
    ] = 0,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile the layers first (torch.compile).")] = False,
    json: Annotated[Path | None, typer.Option(help="Also write the rows here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw quality against speed, as PNG; needs --score.")] = None,
) -> None:
    """Time the presets against the published loop, in one run, alternating."""
    if context.invoked_subcommand is not None:
        return
    from dimoo.cli.bench_run import Order, run

    names = [name for name in (baseline or "", *presets.split(",")) if name]
    order = Order(
        task, read_grid(grid), steps, batch, list(dict.fromkeys(names)), random, repeats, measured_steps, score,
        compiled,
    )  # fmt: skip
    run(order, machine, json, plot)


def read_grid(text: str) -> tuple[int, int]:
    """ "8x12" -> (8, 12): rows and columns of codes."""
    match = re.fullmatch(r"([1-9]\d*)[xX×]([1-9]\d*)", text.strip())
    if not match:
        raise ValueError(f"--grid is ROWSxCOLUMNS of codes, such as 32x32, got {text!r}")
    return int(match[1]), int(match[2])


bench.command("decode")(grouped(decode))
