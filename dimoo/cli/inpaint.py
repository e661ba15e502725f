"""`dimoo inpaint`: filling a part of a picture, or the room around it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dimoo.cli.flags import Machine, Output, Sampling, Start, numbers


def inpaint(
    output: Output,
    start: Start,
    sampling: Sampling,
    machine: Machine,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="The picture to fill.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the whole picture shall show.")],
    mask: Annotated[Path | None, typer.Option(help="A picture that is white where to fill.")] = None,
    box: Annotated[
        list[str] | None,
        typer.Option(metavar="L,T,R,B", help="Fill left,top,right,bottom, in pixels; several are allowed."),
    ] = None,
    expand: Annotated[
        str | None, typer.Option(metavar="L,T,R,B", help="Fill so many pixels of new room around the picture.")
    ] = None,
    preserve: Annotated[
        bool, typer.Option("--preserve/--no-preserve", help="Keep every pixel outside of the hole as it is.")
    ] = True,
) -> None:
    """Fill a hole in a picture, given by --mask or --box, or the room around it, with --expand."""
    if sum(way is not None for way in (mask, box or None, expand)) != 1:
        raise ValueError("say what to fill: one of --mask PICTURE, --box L,T,R,B or --expand L,T,R,B")
    from dimoo.cli.draw import Order, draw
    from dimoo.cli.requests import Filling
    from dimoo.cli.session import checked
    from dimoo.cli.sources import Source
    from dimoo.settings import Defaults

    request = Filling(
        prompt,
        (Source.of(image),),
        mask=None if mask is None else Source.of(mask),
        boxes=tuple(numbers(text, 4, "--box") for text in box) if box else None,
        expand=None if expand is None else numbers(expand, 4, "--expand"),
        preserve=preserve,
    )
    request.task(Defaults())  # what cannot be filled shows before a model is loaded
    draw(Order([request], checked(sampling.given()), start.seed, start.index or 0), machine, output)
