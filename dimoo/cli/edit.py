"""`dimoo edit`: a picture from a picture and an instruction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dimoo.cli.flags import Machine, Output, Sampling, Start


def edit(
    output: Output,
    start: Start,
    sampling: Sampling,
    machine: Machine,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="The picture to change.")],
    prompt: Annotated[
        str, typer.Argument(metavar="[INSTRUCTION]", help='Such as "make the circle green".', show_default=False)
    ] = "",
    kind: Annotated[
        str, typer.Option(help="Such as edit_add, edit_remove, canny_control, depth_dense, image_ref_transfer.")
    ] = "edit_other",
    more: Annotated[
        list[Path] | None, typer.Option("--image", help="A second picture, such as the style to transfer.")
    ] = None,
) -> None:
    """Change a picture as an instruction says.

    Kinds with a fixed instruction, such as depth_dense, need none. The result has the size of the picture.
    """
    from dimoo.cli.draw import Order, draw
    from dimoo.cli.requests import Editing
    from dimoo.cli.session import checked
    from dimoo.cli.sources import Source
    from dimoo.settings import Defaults

    sources = tuple(Source.of(path) for path in (image, *(more or [])))
    request = Editing(prompt, sources, kind)
    request.task(Defaults())  # a wrong kind, a missing word or a broken picture shows before a model is loaded
    draw(Order([request], checked(sampling.given()), start.seed, start.index or 0), machine, output)
