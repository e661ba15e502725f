"""`dimoo generate`: pictures from words, or a picture once more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from dimoo.cli.flags import Machine, Output, Sampling, Start


def generate(
    output: Output,
    start: Start,
    sampling: Sampling,
    machine: Machine,
    prompts: Annotated[list[str] | None, typer.Argument(metavar="PROMPT...", help="What to draw.")] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="HEIGHTxWIDTH", help="In pixels, such as 64x128.", show_default="the model's own"),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="PICTURE", help="Repeat a saved picture to the pixel; other flags change it."),
    ] = None,
) -> None:
    """Draw pictures from words, or repeat a saved one with --from.

    Every picture keeps the parameters that made it: see `dimoo inspect`.
    """
    shape = read_size(size)
    if source is not None:
        from dimoo.cli.repeat import repeat

        return repeat(source, prompts or [], shape, output, start, sampling, machine)
    if not prompts:
        raise ValueError('say what to draw, such as: dimoo generate "a red circle"')
    from dimoo.cli.draw import Order, draw
    from dimoo.cli.requests import Drawing
    from dimoo.cli.session import checked

    requests = [Drawing(prompt, **shape) for prompt in prompts]
    draw(Order(requests, checked(sampling.given()), start.seed, start.index or 0), machine, output)


def read_size(text: str | None) -> dict[str, int]:
    """ "64x128" -> {"height": 64, "width": 128}; "64" is a square; None is nothing."""
    if text is None:
        return {}
    match = re.fullmatch(r"(\d+)(?:[xX×](\d+))?", text.strip())
    if not match:
        raise ValueError(f"--size is HEIGHTxWIDTH in pixels, such as 64x128, got {text!r}")
    return {"height": int(match[1]), "width": int(match[2] or match[1])}
