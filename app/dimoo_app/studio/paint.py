"""Paint: fill what is painted over, and the room around a picture. Outside the mask nothing changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image, ImageChops

from dimoo.cli.requests import Filling, parameters
from dimoo.images import load_image, load_mask
from dimoo.sizes import fit
from dimoo.tasks import Inpaint, expand, mask_cells
from dimoo_app.studio import figures, samples
from dimoo_app.studio.controls import Sampling, Seed, seed_of
from dimoo_app.studio.desk import Desk, need, spoken
from dimoo_app.studio.details import Details
from dimoo_app.studio.running import Buttons

TAB = "paint"
BRUSH = "#0d9488"
SIDES = ("left", "top", "right", "bottom")
EMPTY = figures.empty("Nothing painted yet", "Choose a picture, paint over what is to be filled, say what it shows.")
GRID = figures.empty("The token grid", "Paint: the cells that will be filled are shown here.")
MOMENT = "() => new Promise(done => setTimeout(() => done([]), 120))"
"""Milliseconds until a stroke is part of the editor's value."""


@dataclass(frozen=True)
class Paint:
    details: Details
    editor: gr.ImageEditor
    original: gr.State

    @staticmethod
    def opened(path: str | Path) -> tuple[Image.Image, str]:
        """Values for editor and original: small pictures are enlarged, so that there is something to paint on."""
        with spoken():
            return figures.enlarged(load_image(path)), str(path)


def build(desk: Desk) -> Paint:
    original = gr.State(None)
    with gr.Row(elem_classes="split"):
        with gr.Column(scale=6, min_width=320, elem_classes="asked"):
            editor = gr.ImageEditor(
                label="Paint the hole", type="pil", layers=False, transforms=(), format="png",
                sources=("upload", "clipboard"), brush=gr.Brush(default_size=48, colors=[BRUSH], color_mode="fixed"),
                canvas_size=(512, 512), height=440, elem_id="paint-editor",
                placeholder="Choose or drop a picture",
            )  # fmt: skip
            prompt = gr.Textbox(label="What the whole picture shows", placeholder="a red circle and a blue star",
                                max_lines=4, elem_id="paint-prompt")  # fmt: skip
            buttons = Buttons.build("Fill", TAB)
            with gr.Column(elem_classes="later"):
                with gr.Accordion("Expand the canvas", open=False, elem_id="paint-expand"), gr.Row():
                    room = [gr.Number(0, label=f"{side}, pixels", precision=0, minimum=0, min_width=80,
                                      elem_id=f"paint-{side}") for side in SIDES]  # fmt: skip
                seed = Seed.build(TAB)
                with gr.Accordion("How to fill it", open=False):
                    sampling = Sampling.build(TAB, desk.defaults)
                samples.row(TAB, samples.HOLES, lambda path, words: (*Paint.opened(path), words),
                            [editor, original, prompt])  # fmt: skip
        with gr.Column(scale=6, min_width=320, elem_classes="made"):
            grid = gr.HTML(GRID, elem_id="paint-grid", padding=False)
            live = gr.HTML(EMPTY, elem_id="paint-live", padding=False)
            details = Details.build(desk, TAB, "Result", columns=2)

    def upload(request: gr.Request, value: dict[str, Any]):
        """Keep the upload as it is; show it enlarged."""
        need((value or {}).get("background"))
        with spoken():
            picture = load_image(value["background"])
            history = desk.history(request)
            path = history.folder / history.source(picture).path
        return Paint.opened(path)

    def preview(value: dict[str, Any] | None, path: str | None, *room: float):
        """The cells that the mask comes to, before anything is run."""
        if not path:
            return GRID
        picture, mask = hole(value, path, room)
        codec = desk.codec
        fitted = fit(picture, codec.image_side, codec.images.ratio)
        cells = mask_cells(Inpaint("preview", picture, mask).hole_at(fitted.size, codec), codec.images.ratio)
        words = f"{int(cells.sum())} of {cells.numel()} cells will be filled"
        return figures.stage([figures.Figure(figures.marked(fitted, cells), words)])

    quiet = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    editor.upload(upload, editor, [editor, original], **quiet)
    editor.clear(lambda: (None, GRID), None, [original, grid], **quiet)
    # The editor tells of a stroke before the stroke is in what it gives, so it is asked again a moment later.
    strokes = gr.on([editor.input, editor.change], None, js=MOMENT, trigger_mode="always_last", **quiet)
    for event in (strokes.then, original.change, *(part.change for part in room)):
        event(preview, [editor, original, *room], grid, trigger_mode="always_last", **quiet)

    def work(request: gr.Request, value, path, prompt: str, left, top, right, bottom, number, locked, *values: Any):
        need((value or {}).get("background") and path)
        with spoken():
            picture, mask = hole(value, path, (left, top, right, bottom))
            if mask.getextrema()[1] == 0:
                raise ValueError("nothing is painted: paint over what is to be filled, or expand the canvas")
            task, settings = Inpaint(prompt, picture, mask), sampling.settings(values)
        start = seed_of(number, locked)
        job = desk.start(request, TAB, [task], settings, start)
        if (result := (yield from buttons.follow(desk, job, start))) is None:
            return
        history = desk.history(request)
        filling = Filling(prompt, (history.source(picture),), mask=history.source(mask))
        paths = desk.keep(request, job, parameters(filling))
        told = figures.done(f"{figures.seconds(result.seconds)}, {result.forwards} forwards.")
        yield [told, start, *Details.showing(paths), *buttons.free()]

    inputs = [editor, original, prompt, *room, *seed.inputs, *sampling.inputs]
    outputs = [live, seed.number, *details.outputs, *buttons.outputs]
    buttons.wire(desk, work, inputs, outputs, prompt)
    return Paint(details, editor, original)


def hole(value: dict[str, Any] | None, path: str, room) -> tuple[Image.Image, Image.Image]:
    """The picture at its own size and the mask of what is painted (255 where to fill), with room around both."""
    picture = load_image(path)
    mask = Image.new("L", picture.size, 0)
    for layer in (value or {}).get("layers") or ():
        mask = ImageChops.lighter(mask, load_mask(layer, size=picture.size))
    room = [int(side or 0) for side in room]
    if not any(room):
        return picture, mask
    wide, around = expand(picture, *room)
    painted = Image.new("L", wide.size, 0)
    painted.paste(mask, (room[0], room[1]))
    return wide, ImageChops.lighter(around, painted)
