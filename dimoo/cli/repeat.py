"""`dimoo generate --from`: everything a picture says about itself, with the given flags on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dimoo import __version__
from dimoo.cli import console
from dimoo.cli.draw import Order, draw
from dimoo.cli.flags import Machine, Output, Sampling, Start, flag_of
from dimoo.cli.requests import Drawing, read
from dimoo.cli.session import checked
from dimoo.images import read_parameters
from dimoo.settings import Settings

OURS = {"dimoo", "task", "prompt", "model", "model_fingerprint", "device", "dtype", "seed", "index", "step", "forwards"}
OURS |= {"item"}  # of a batch
SHAPE = {"height", "width", "images", "edit", "mask", "boxes", "expand", "preserve"}
SETTINGS = {field.name for field in fields(Settings)}


def repeat(
    source: Path, prompts: Sequence[str], shape: dict[str, int], output: Output, start: Start, sampling: Sampling,
    machine: Machine,
) -> None:  # fmt: skip
    """Make the picture `source` once more; what is given changes it, and is said."""
    stated = read_parameters(source)
    check(source, stated)
    request = read(stated, source.parent)
    if shape and not isinstance(request, Drawing):
        raise ValueError(f"{source}: the size of this picture is that of its source; leave out --size")
    placed = {"model": stated.get("model"), "dtype": stated.get("dtype")}
    given = {name: value for name, value in vars(machine).items() if value is not None}
    chosen = {"seed": start.seed, "index": start.index, **sampling.given(), **shape, **given}
    chosen["prompt"] = prompts[0] if len(prompts) == 1 else list(prompts) or None
    tell(stated, {name: value for name, value in chosen.items() if name != "device" and value is not None})

    settings = {name: _untupled(value) for name, value in stated.items() if name in SETTINGS} | sampling.given()
    request = replace(request, **shape)
    requests = [replace(request, prompt=prompt) for prompt in prompts] or [request]
    seed = stated["seed"] if start.seed is None else start.seed
    index = stated["index"] if start.index is None else start.index
    fingerprint = None if machine.model else stated.get("model_fingerprint")
    order = Order(requests, checked(settings), seed, index, fingerprint)
    draw(order, Machine(**{**placed, **given}), output)


def check(source: Path, stated: Mapping[str, Any]) -> None:
    """Raises ValueError when a parameter is missing; says what may make pixels differ."""
    for name in ("seed", "index"):
        if type(stated.get(name)) is not int:
            raise ValueError(f"{source}: its parameters have no whole number {name!r}, so it cannot be repeated")
    unknown = sorted(set(stated) - OURS - SHAPE - SETTINGS)
    if unknown:
        console.note(f"{source} states what this version does not know and leaves out: {', '.join(unknown)}")
    if stated.get("dimoo") != __version__:
        console.note(f"{source} was made by dimoo {stated.get('dimoo')}, this is {__version__}: pixels may differ")


def tell(stated: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    """Say which parameters are not those of the picture."""
    changed = {name: value for name, value in chosen.items() if stated.get(name) != value}
    words = [f"{flag_of(name).removeprefix('--')} {stated.get(name)!r} -> {value!r}" for name, value in changed.items()]
    if words:
        console.note(f"changed: {', '.join(words)}")


def _untupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
