"""`dimoo eval`: how good a checkpoint is, on held-out facts of the small world or in GenEval's folder layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dimoo.cli.extras import reach

evaluate = typer.Typer(invoke_without_command=True)


@evaluate.callback()
def score(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="dimoo-tiny, or a folder of the same world.")] = "dimoo-tiny",
    per_kind: Annotated[int | None, typer.Option(help="Items of each kind.", show_default="all 40 committed")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Other held-out facts, drawn from this seed.", show_default="the committed facts")
    ] = None,
    world: Annotated[str, typer.Option(help="full, or first: fewer shapes, colours, sizes and backgrounds.")] = "full",
    part: Annotated[list[str] | None, typer.Option(help="t2i, qa, caption, edit, map, reference, puzzle.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps a picture.", show_default="the checkpoint's")] = None,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale.", show_default="the checkpoint's")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the draw.", show_default="the checkpoint's")] = None,
    preset: Annotated[str, typer.Option(help="Speed against quality, of pictures and answers.")] = "exact",
    json: Annotated[Path | None, typer.Option("--json", help="Also write the scores to this file.")] = None,
    sheet: Annotated[Path | None, typer.Option(help="Also draw every picture to this file.")] = None,
) -> None:
    """Score a checkpoint; its pictures are read by an oracle. `dimoo eval geneval` is for models of real pictures."""
    if context.invoked_subcommand is None:
        settings = {"num_inference_steps": steps, "guidance_scale": guidance, "temperature": temperature}
        chosen = {name: value for name, value in settings.items() if value is not None}
        run = reach("dimoo_training.commands:evaluate", "train")
        run(model, per_kind, seed, world, part, chosen, preset, json, sheet)


@evaluate.command()
def tokenizer(
    model: Annotated[str, typer.Option(help="A checkpoint of the small world.")] = "dimoo-tiny",
    vq: Annotated[Path | None, typer.Option("--vq", help="An image tokenizer's own folder instead.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Pictures, and as many maps.")] = 500,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option("--json", help="Also write the numbers to this file.")] = None,
    sheet: Annotated[Path | None, typer.Option(help="Also draw originals and reconstructions to this file.")] = None,
) -> None:
    """Measure an image tokenizer against its gates. Exit code 1 when one is missed."""
    if not reach("dimoo_training.commands:gates", "train")(model, vq, count, seed, json, sheet):
        raise typer.Exit(1)


@evaluate.command()
def geneval(
    prompts: Annotated[Path, typer.Option(help="GenEval's evaluation_metadata.jsonl: a JSON object a line.")],
    images: Annotated[Path, typer.Option(help="Folder to write: NNNNN/metadata.jsonl, NNNNN/samples/0000.png ...")],
    model: Annotated[str, typer.Option(help="A checkpoint: name, folder or hub id.")] = "dimoo-tiny",
    samples: Annotated[int, typer.Option(help="Pictures a prompt.")] = 4,
    seed: int = 0,
    batch: Annotated[int, typer.Option(help="Prompts drawn at once.")] = 8,
    clip: Annotated[Path | None, typer.Option(help="Local open_clip weights (ViT-B-32): adds the CLIP score.")] = None,
) -> None:
    """Draw a GenEval prompt file into the folder layout that the public scorer reads. Goes on where it stopped."""
    reach("dimoo_training.commands:geneval", "train")(prompts, images, model, samples, seed, batch, clip)
