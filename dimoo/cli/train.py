"""`dimoo train`: the training commands, which live in another package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dimoo.cli.extras import reach

train = typer.Typer(invoke_without_command=True)

Recipe = Annotated[str, typer.Option(help='"debug" (a minute), "tiny", "small", or your own as file.py:name.')]
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder of the run.")]
VQ = Annotated[
    Path | None, typer.Option("--vq", help="Folder of the image tokenizer.", show_default="that of dimoo-tiny")
]
Steps = Annotated[int | None, typer.Option(min=1, help="Length of the run.", show_default="the recipe's")]
Model = Annotated[str, typer.Option(help="The checkpoint to start from: a folder or hub id in the hosted layout.")]


@train.callback()
def show(context: typer.Context) -> None:
    """Train the image tokenizer, then the model; fine-tune a checkpoint on pictures of your own; align it."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@train.command()
def vq(recipe: Recipe = "tiny", out: Out = Path("runs/vq")) -> None:
    """Train the image tokenizer: pictures to codes and back."""
    reach("dimoo_training.commands:vq", "train")(recipe, out)


@train.command()
def pictures(recipe: Recipe = "small", out: Out = Path("runs/small"), vq: VQ = None) -> None:
    """Make the pictures of a run beforehand, so that `sft` needs no diffusers where it runs."""
    reach("dimoo_training.commands:pictures", "train")(recipe, vq, out)


@train.command()
def sft(
    recipe: Recipe = "tiny",
    out: Out = Path("runs/sft"),
    vq: VQ = None,
    steps: Steps = None,
) -> None:
    """Train the model on pictures, edits and answers. A run that was stopped goes on by itself."""
    reach("dimoo_training.commands:sft", "train")(recipe, vq, out, steps)


@train.command()
def snapshot(
    run: Annotated[Path, typer.Argument(help="The folder of a run of `sft`, which may be going on.")],
    out: Out = Path("runs/tiny-base"),
) -> None:
    """Keep a run's model as it is now, as the start of reinforcement learning: before it knows everything."""
    reach("dimoo_training.commands:snapshot", "train")(run, out)


@train.command()
def tokenize(
    data: Annotated[Path, typer.Argument(help="JSON lines: text_to_image, edit and understanding items.")],
    model: Model,
    out: Out = Path("runs/data"),
    seed: Annotated[int, typer.Option(help="Of the windows that pictures are cut at.")] = 0,
) -> None:
    """Pictures and texts to parquet, for `finetune`. Goes on where it stopped; bad lines are named and left out."""
    reach("dimoo_training.commands:tokenise", "train")(data, model, out, seed)


@train.command()
def finetune(
    data: Annotated[Path, typer.Option(help="The folder that `tokenize` wrote.")],
    model: Model,
    recipe: Annotated[str, typer.Option(help='"lora" or "full", or your own as file.py:name.')] = "lora",
    out: Out = Path("runs/finetune"),
    steps: Steps = None,
) -> None:
    """Fine-tune a checkpoint. On several devices: accelerate launch --num_processes N -m dimoo train finetune ..."""
    reach("dimoo_training.commands:finetune", "train")(model, data, recipe, out, steps)


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
