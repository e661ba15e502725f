"""Making pictures: one at a time, so that each depends on nothing but its own parameters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from dimoo.cli import console
from dimoo.cli.destination import Destination
from dimoo.cli.film import Film
from dimoo.cli.flags import Machine, Output
from dimoo.cli.requests import Request, parameters
from dimoo.cli.session import Session, load
from dimoo.images import save_png
from dimoo.seeds import seeds_for
from dimoo.settings import Settings
from dimoo.tasks import Edit, Task


@dataclass(frozen=True)
class Order:
    """What one command makes: `output.num_images` of each request, on the random streams (seed, index), ..."""

    requests: Sequence[Request]
    settings: Settings
    seed: int | None = None
    index: int = 0
    fingerprint: str | None = None
    """Of the model that is expected, when a picture is repeated."""


def draw(order: Order, machine: Machine, output: Output) -> None:
    """Make, save and report every picture of an order. A failure leaves the pictures before it."""
    count = 1 if output.num_images is None else output.num_images
    if count < 1:
        raise ValueError(f"--num-images must be at least 1, got {count}")
    if output.preview_every is not None and output.preview_every < 1:
        raise ValueError(f"--preview-every must be at least 1, got {output.preview_every}")
    if order.index < 0:
        raise ValueError(f"--index must be 0 or more, got {order.index}")
    requests = [request for request in order.requests for _ in range(count)]
    destination = Destination.of(output.out, len(requests))
    session = load(machine)
    if order.fingerprint not in (None, session.fingerprint):
        console.note(f"the weights of {session.model} are not those that made the picture: pixels will differ")
    seeds = seeds_for(len(requests), order.seed, order.index)
    for number, (request, start) in enumerate(zip(requests, seeds, strict=True)):
        with destination.picture(number, request.prompt, *start) as path:
            made = draw_one(session, request, order.settings, start, path, destination, output)
            console.say_picture(path, made.picture.size, *start, made.seconds)
            tell_of_fitting(made)


@dataclass(frozen=True)
class Made:
    """A picture, the task it answers, and how long the model took."""

    picture: Image.Image
    task: Task
    seconds: float


def draw_one(
    session: Session, request: Request, settings: Settings, start: tuple[int, int], path: Path,
    destination: Destination, output: Output = Output(),  # noqa: B008  (frozen)
) -> Made:  # fmt: skip
    """Make and save one picture, with its previews and its strip of steps."""
    pipeline, task = session.pipeline, request.task(session.pipeline.defaults)
    settings = settings.filled(pipeline.defaults, task.kind)
    made_of = session.record(parameters(request), settings, task.kind, start)
    film = Film(pipeline.codec, task) if output.filmed else None
    with console.progress(request.prompt or path.stem, settings.num_inference_steps) as advance:

        def on_step(_, step: int, tick: int, tensors: dict[str, Any]) -> None:
            advance()
            if film:
                film.take(tensors["ids"][0])
            if output.preview_every and (step + 1) % output.preview_every == 0:
                save(film.frame(step + 1), destination.frame(path, step + 1), made_of, step=step + 1)

        began = time.perf_counter()
        made = pipeline.run([task], seed=[start], callback_on_step_end=on_step, **vars(settings))
        seconds = time.perf_counter() - began
    save(made.images[0], path, made_of, forwards=made.forwards)
    if output.strip:
        height, width = made.images[0].height, made.images[0].width
        save(film.strip(), path.with_name(f"{path.stem}-steps.png"), made_of, height=height, width=width)
    return Made(made.images[0], task, seconds)


def save(picture: Image.Image, path: Path, made_of: dict[str, Any], **more: Any) -> None:
    """Save with the parameters; height and width are the picture's unless given (a strip shows a smaller one)."""
    save_png(picture, path, {**made_of, "height": picture.height, "width": picture.width, **more})


def tell_of_fitting(made: Made) -> None:
    """Say so when the source picture was scaled and cut to what the model takes."""
    source = made.task.images[0] if isinstance(made.task, Edit) else getattr(made.task, "image", made.picture)
    if source.size != made.picture.size:
        was, now = (f"{size[1]}x{size[0]}" for size in (source.size, made.picture.size))
        console.note(f"the source is {was}; it was fitted to {now}, which this model takes")
