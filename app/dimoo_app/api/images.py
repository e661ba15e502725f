"""/v1/images: drawings, edits, and holes to be filled."""

from __future__ import annotations

import base64
import hashlib
import io
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from PIL import Image, ImageChops
from starlette.datastructures import FormData, UploadFile

from dimoo.cli.requests import Drawing, Editing, Filling, parameters
from dimoo.cli.sources import Source
from dimoo.engine import Job, Result
from dimoo.images import load_image, load_mask, png_bytes
from dimoo.settings import Settings
from dimoo.tasks import Edit, Inpaint, Task, TextToImage
from dimoo_app.api.following import finished, progress, sse, stream
from dimoo_app.api.schemas import EditRequest, GenerationRequest, PictureRequest
from dimoo_app.api.service import Service, service

router = APIRouter(prefix="/v1/images", tags=["images"])


@dataclass(frozen=True)
class Order:
    """One request, understood: the task, what a picture keeps of it, and how events of it are called."""

    task: Task
    stated: dict
    settings: Settings
    event: str


@router.post("/generations")
async def generations(asked: GenerationRequest, request: Request, served: Service = Depends(service)):  # noqa: B008
    """Draw `n` pictures of `prompt`."""
    height, width = asked.shape(served)
    drawing = Drawing(asked.prompt, height, width)
    order = Order(TextToImage(asked.prompt, height, width), parameters(drawing), asked.settings(served.limits),
                  "image_generation")  # fmt: skip
    order.task.shape(served.session.pipeline.codec)             # a wrong size is known before it waits
    return await respond(asked, order, request, served)


@router.post("/edits")
async def edits(request: Request, served: Service = Depends(service)):  # noqa: B008
    """Change `image` (two for a reference style), or fill the `mask` of it."""
    form = await request.form()
    files = [file for name in ("image", "image[]") for file in form.getlist(name) if isinstance(file, UploadFile)]
    asked = EditRequest(**{name: value for name, value in form.items() if isinstance(value, str)})
    if not files:
        raise ValueError("image is missing: send one picture, or two for a reference style")
    order = await run_in_threadpool(read, asked, files, form, served)
    return await respond(asked, order, request, served)


def read(asked: EditRequest, files: Sequence[UploadFile], form: FormData, served: Service) -> Order:
    """The uploaded files as a task. A mask makes it in-painting."""
    pictures, sources = zip(*(_upload(file) for file in files), strict=True)
    if asked.size not in (None, "auto") and asked.shape(served) != pictures[0].size[::-1]:
        raise ValueError(f"size: the result has the size of its picture, {'x'.join(map(str, pictures[0].size))}")
    mask = form.get("mask")
    if not isinstance(mask, UploadFile):
        task = Edit(asked.prompt, list(pictures), asked.edit)
        stated = parameters(Editing(asked.prompt, sources, asked.edit))
        scale = {"image_guidance_scale": asked.image_guidance_scale}
        return Order(task, stated, asked.settings(served.limits, **scale), "image_edit")
    if len(pictures) > 1:
        raise ValueError(f"a mask goes with one picture, got {len(pictures)}")
    hole, kept = openai_mask(mask.file.read(), pictures[0].size), _source(mask)
    task = Inpaint(asked.prompt, pictures[0], hole)
    stated = parameters(Filling(asked.prompt, sources, mask=kept))
    return Order(task, stated, asked.settings(served.limits), "image_edit")


def openai_mask(data: bytes, size: tuple[int, int]) -> Image.Image:
    """OpenAI marks the hole by transparency; a mask without any marks it in white, as everywhere here."""
    mask = load_mask(data, size=size)
    with Image.open(io.BytesIO(data)) as opened:
        alpha = opened.convert("RGBA").getchannel("A").getextrema()[0] < 255
    return ImageChops.invert(mask) if alpha else mask


async def respond(asked: PictureRequest, order: Order, request: Request, served: Service):
    served.check_model(asked.model)
    asked.check(served.limits)
    partial = asked.stream and asked.partial_images > 0
    job = served.engine.submit([order.task] * asked.n, order.settings, seed=asked.seed, watched=partial)
    if asked.stream:
        return stream(events(asked, order, job, served), job)
    result = await finished(request, job)
    data = await run_in_threadpool(files_of, asked, order, job, result, served)
    return {"created": int(time.time()), "data": data, "output_format": "png", **told(result)}


async def events(asked: PictureRequest, order: Order, job: Job, served: Service) -> AsyncIterator[str]:
    """Partial pictures at even distances, as OpenAI's events, then the finished ones."""
    marks = [job.total * (k + 1) // (asked.partial_images + 1) for k in range(asked.partial_images)]
    shown = 0
    async for step in progress(job):
        if shown < len(marks) and step >= marks[shown] and job.samples[0].ids is not None:
            png = await run_in_threadpool(preview, job, served)
            event = {"type": f"{order.event}.partial_image", "partial_image_index": shown, "b64_json": _b64(png)}
            yield sse({**event, **_looks(order, served)}, event["type"])
            shown += 1
    result = job.wait(0)
    for file in await run_in_threadpool(files_of, asked, order, job, result, served):
        event = {"type": f"{order.event}.completed", **file, **_looks(order, served), **told(result)}
        yield sse(event, event["type"])


def preview(job: Job, served: Service) -> bytes:
    """The first picture of a job as it is now, grey where it is open."""
    sample = job.samples[0]
    return png_bytes(sample.task.preview(served.session.pipeline.codec, sample.ids), {"step": sample.step})


def files_of(asked: PictureRequest, order: Order, job: Job, result: Result, served: Service) -> list[dict]:
    """The pictures as PNG with their parameters, in base64 or as data URLs."""
    entries = []
    for picture, start in zip(result.answers, result.seeds, strict=True):
        made_of = served.session.record(order.stated, job.settings, job.kind, start)
        shape = {"height": picture.height, "width": picture.width, "forwards": result.forwards}
        text = _b64(png_bytes(picture, made_of | shape))
        entry = {"b64_json": text} if asked.response_format == "b64_json" else {"url": f"data:image/png;base64,{text}"}
        entries.append({**entry, "seed": start[0], "index": start[1]})
    return entries


def told(result: Result) -> dict:
    return {"usage": {"forwards": result.forwards, "seconds": round(result.seconds, 3),
                      "total_tokens": 0, "input_tokens": 0, "output_tokens": 0}}  # fmt: skip


def _looks(order: Order, served: Service) -> dict:
    """Fields that OpenAI's events have; the size is WIDTHxHEIGHT in pixels."""
    codec = served.session.pipeline.codec
    rows, columns = order.task.shape(codec)
    size = f"{columns * codec.images.ratio}x{rows * codec.images.ratio}"
    return {"created_at": int(time.time()), "output_format": "png", "quality": "auto", "background": "opaque",
            "size": size}  # fmt: skip


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _upload(file: UploadFile) -> tuple[Image.Image, Source]:
    return load_image(file.file.read()), _source(file)


def _source(file: UploadFile) -> Source:
    """What the parameters say about an uploaded file: its bare name and its checksum."""
    file.file.seek(0)
    checksum = hashlib.sha256(file.file.read()).hexdigest()
    return Source(PurePath(file.filename or "upload.png").name, checksum)
