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
    """Train the image tokenizer, then the model; then align it."""
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


Model = Annotated[str, typer.Option(help="The checkpoint to start from: dimoo-tiny, a folder or a hub id.")]
Aligned = Annotated[str, typer.Option("--recipe", help='"debug" (a minute), "tiny", others, or file.py:name.')]


@train.command("self-grpo")
def self_grpo(recipe: Aligned = "tiny", model: Model = "dimoo-tiny", out: Out = Path("runs/self-grpo")) -> None:
    """Let the model draw, question its own drawings and learn from both. Goes on by itself when it was stopped."""
    reach("dimoo_training.rl.commands:run", "train")("self-grpo", recipe, model, out)


@train.command()
def grpo(recipe: Aligned = "tiny", model: Model = "dimoo-tiny", out: Out = Path("runs/grpo")) -> None:
    """The same with clipped ratios; recipes hierarchical, unigrpo, and sudoku and countdown for text (CJ-GRPO)."""
    reach("dimoo_training.rl.commands:run", "train")("grpo", recipe, model, out)


@train.command()
def dpo(recipe: Aligned = "tiny", model: Model = "dimoo-tiny", out: Out = Path("runs/dpo")) -> None:
    """Preference pairs from the model's own groups: best against worst."""
    reach("dimoo_training.rl.commands:run", "train")("dpo", recipe, model, out)
