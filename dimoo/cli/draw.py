"""Making pictures, several at once; each depends on nothing but its own parameters, and is saved with them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
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
from dimoo.tasks import Edit, Task, TextToImage


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
    if output.batch_size is not None and output.batch_size < 1:
        raise ValueError(f"--batch-size must be at least 1, got {output.batch_size}")
    requests = [request for request in order.requests for _ in range(count)]
    destination = Destination.of(output.out, len(requests))
    session = load(machine)
    if order.fingerprint not in (None, session.fingerprint):
        console.note(f"the weights of {session.model} are not those that made the picture: pixels will differ")
    defaults = session.pipeline.defaults
    tasks = {id(request): request.task(defaults) for request in order.requests}
    settings = order.settings.filled(defaults, tasks[id(requests[0])].kind)
    seeds = seeds_for(len(requests), order.seed, order.index)
    size = output.batch_size or at_once(session, tasks[id(requests[0])])
    for first in range(0, len(requests), size):
        chosen = range(first, min(first + size, len(requests)))
        with ExitStack() as reserved:
            batch = [
                Item(requests[k], tasks[id(requests[k])], seeds[k], reserved.enter_context(
                    destination.picture(k, requests[k].prompt, *seeds[k])
                ))
                for k in chosen
            ]  # fmt: skip
            for item, made in zip(batch, draw_batch(session, batch, settings, destination, output), strict=True):
                console.say_picture(item.path, made.picture.size, *item.start, made.seconds)
                tell_of_fitting(item.task, made.picture)


CODES_AT_ONCE, MOST_AT_ONCE = 4096, 16


def at_once(session: Session, task: Task) -> int:
    """Pictures to draw in one batch: as many as one of 1024x1024 pixels costs, at 16 pixels a code.

    One where rounding is coarse: there a batch may round otherwise than a picture alone, which then is another one.
    """
    if (session.device, session.dtype) != ("cpu", "float32"):
        return 1
    area = task.height * task.width if isinstance(task, TextToImage) else session.pipeline.defaults.image_side**2
    return max(1, min(MOST_AT_ONCE, CODES_AT_ONCE * session.pipeline.codec.images.ratio**2 // area))


@dataclass
class Item:
    """One picture to make: what was asked, the task that answers it, (seed, index), where it goes."""

    request: Request
    task: Task
    start: tuple[int, int]
    path: Path
    film: Film | None = None


@dataclass(frozen=True)
class Made:
    """A picture, and how long the model took for it; of a batch, its share."""

    picture: Image.Image
    seconds: float


def draw_one(
    session: Session, request: Request, settings: Settings, start: tuple[int, int], path: Path,
    destination: Destination, output: Output = Output(),  # noqa: B008  (frozen)
) -> Made:  # fmt: skip
    """Make and save one picture, with its previews and its strip of steps."""
    task = request.task(session.pipeline.defaults)
    filled = settings.filled(session.pipeline.defaults, task.kind)
    return draw_batch(session, [Item(request, task, start, path)], filled, destination, output)[0]


def draw_batch(
    session: Session, batch: Sequence[Item], settings: Settings, destination: Destination, output: Output
) -> list[Made]:
    """Make and save some pictures at once, with their previews and strips of steps."""
    pipeline = session.pipeline
    for item in batch:
        item.film = Film(pipeline.codec, item.task) if output.filmed else None
    words = batch[0].request.prompt or batch[0].path.stem
    with console.progress(words, settings.num_inference_steps) as advance:

        def on_step(_, step: int, tick: int, tensors: dict[str, Any]) -> None:
            advance()
            tries = len(tensors["ids"]) // len(batch)                           # of a search: the first is shown
            for item, ids in zip(batch, tensors["ids"][::tries], strict=True):
                if item.film:
                    item.film.take(ids)
                if output.preview_every and (step + 1) % output.preview_every == 0:
                    path = destination.frame(item.path, step + 1)
                    save(item.film.frame(step + 1), path, made_of(session, item, settings), step=step + 1)

        began = time.perf_counter()
        tasks, starts = [item.task for item in batch], [item.start for item in batch]
        made = pipeline.run(tasks, seed=starts, callback_on_step_end=on_step, **vars(settings))
        seconds = (time.perf_counter() - began) / len(batch)
    for item, picture in zip(batch, made.images, strict=True):
        save(picture, item.path, made_of(session, item, settings), forwards=made.forwards)
        if output.strip:
            path = item.path.with_name(f"{item.path.stem}-steps.png")
            shape = {"height": picture.height, "width": picture.width}
            save(item.film.strip(), path, made_of(session, item, settings), **shape)
    return [Made(picture, seconds) for picture in made.images]


def made_of(session: Session, item: Item, settings: Settings) -> dict[str, Any]:
    """What a picture keeps of how it was made."""
    return session.record(parameters(item.request), settings, item.task.kind, item.start)


def save(picture: Image.Image, path: Path, made_of: dict[str, Any], **more: Any) -> None:
    """Save with the parameters; height and width are the picture's unless given (a strip shows a smaller one)."""
    save_png(picture, path, {**made_of, "height": picture.height, "width": picture.width, **more})


def tell_of_fitting(task: Task, picture: Image.Image) -> None:
    """Say so when the source picture was scaled and cut to what the model takes."""
    source = task.images[0] if isinstance(task, Edit) else getattr(task, "image", picture)
    if source.size != picture.size:
        was, now = (f"{size[1]}x{size[0]}" for size in (source.size, picture.size))
        console.note(f"the source is {was}; it was fitted to {now}, which this model takes")
