"""`dimoo inspect`: what a picture or a checkpoint says about itself."""

from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated, Any

import typer

from dimoo.cli import console

FIRST = ("prompt", "task", "seed", "index", "height", "width", "model")


def inspect(
    target: Annotated[str, typer.Argument(metavar="PICTURE", help="A PNG saved by dimoo, or a checkpoint folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")] = False,
) -> None:
    """Show the parameters that made a picture; of a checkpoint, its shape and size."""
    path = Path(target)
    if path.is_dir() or (not path.exists() and target == "dimoo-tiny"):
        from dimoo.cli.memory import describe

        found = describe(target)
    else:
        from dimoo.images import read_parameters

        found = ordered(read_parameters(path))
    if json:
        typer.echo(js.dumps(found, ensure_ascii=False, indent=2))
    else:
        console.facts(target, {name: readable(value) for name, value in found.items()})


def ordered(found: dict[str, Any]) -> dict[str, Any]:
    """What people look for first, then the rest by name."""
    names = [name for name in FIRST if name in found]
    return {name: found[name] for name in (*names, *sorted(set(found) - set(names)))}


def readable(value: Any) -> str:
    """Plain text as it is, anything nested as JSON."""
    return value if isinstance(value, str) else js.dumps(value, ensure_ascii=False)
