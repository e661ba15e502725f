"""`dimoo train`: the training commands, which live in another package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dimoo.cli.extras import reach

train = typer.Typer(invoke_without_command=True)

Recipe = Annotated[str, typer.Option(help='"debug" (a minute), "tiny", or your own as file.py:name.')]
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder of the run.")]


@train.callback()
def show(context: typer.Context) -> None:
    """Train the image tokenizer, then the model."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@train.command()
def vq(recipe: Recipe = "tiny", out: Out = Path("runs/vq")) -> None:
    """Train the image tokenizer: pictures to codes and back."""
    reach("dimoo_training.commands:vq", "train")(recipe, out)


@train.command()
def sft(
    recipe: Recipe = "tiny",
    out: Out = Path("runs/sft"),
    vq: Annotated[
        Path | None, typer.Option("--vq", help="Folder of the image tokenizer.", show_default="that of dimoo-tiny")
    ] = None,
) -> None:
    """Train the model on pictures, edits and answers. A run that was stopped goes on by itself."""
    reach("dimoo_training.commands:sft", "train")(recipe, vq, out)
