"""Edit: a picture and an instruction, before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from dimoo.cli.requests import Editing, parameters
from dimoo.images import load_image
from dimoo.tasks import Edit
from dimoo.tasks.edit import CONTROLS, DENSE, EDIT_KINDS, PICTURES, VIEWS
from dimoo_app.studio import figures, samples
from dimoo_app.studio.controls import Sampling, Seed, seed_of
from dimoo_app.studio.desk import Desk, need, spoken
from dimoo_app.studio.details import Details
from dimoo_app.studio.running import Buttons

TAB = "edit"
WORDS = {
    **{"edit_other": "Change something", "edit_add": "Add something", "edit_remove": "Remove something",
       "edit_replace": "Replace something", "edit_background": "Change the background",
       "edit_transfer": "Change the style"},
    "image_ref_transfer": "Take the style of another picture",
    "subject_driven": "Draw this subject again",
    **{f"{name}_control": f"Draw from a map: {name}" for name in CONTROLS},
    **{f"{name}_pred": f"Draw a picture of this map: {name}" for name in CONTROLS},
    **{f"{name}_dense": f"Make a map: {name}" for name in DENSE},
    **{f"multi_view_{view}": f"Show it from the {view}" for view in VIEWS},
    "other": "Anything else with a picture",
}  # fmt: skip
"""Kind of edit -> what it does, in words. Kinds without words of their own keep their name."""
CHOICES = [(words, kind) for kind, words in ({**WORDS, **{k: WORDS.get(k, k) for k in EDIT_KINDS}}).items()
           if kind in EDIT_KINDS]  # fmt: skip
EMPTY = figures.empty("Nothing edited yet", "Choose a picture, say what to change, press Enter.")


@dataclass(frozen=True)
class EditTab:
    details: Details
    image: gr.Image


def build(desk: Desk) -> EditTab:
    small = figures.looks(desk.defaults)
    with gr.Row(elem_classes="split"):
        with gr.Column(scale=5, min_width=320, elem_classes="asked"):
            with gr.Row():
                image = gr.Image(label="Picture", type="filepath", sources=["upload", "clipboard"], height=260,
                                 elem_id="edit-image", elem_classes=small, min_width=150)  # fmt: skip
                style = gr.Image(label="Style", type="filepath", sources=["upload", "clipboard"], height=260,
                                 visible=False, elem_id="edit-style", elem_classes=small, min_width=150)  # fmt: skip
            kind = gr.Dropdown(CHOICES, value="edit_other", label="Kind of edit", elem_id="edit-kind")
            prompt = gr.Textbox(label="What to change", placeholder="make the circle green", max_lines=4,
                                elem_id="edit-prompt")  # fmt: skip
            buttons = Buttons.build("Edit", TAB)
            with gr.Column(elem_classes="later"):
                seed = Seed.build(TAB)
                with gr.Accordion("How to edit it", open=False):
                    sampling = Sampling.build(TAB, desk.defaults, "edit")
                samples.row(TAB, samples.EDITS, lambda path, words: (path, words), [image, prompt])
        with gr.Column(scale=7, min_width=320, elem_classes="made"):
            live = gr.HTML(EMPTY, elem_id="edit-live", padding=False)
            slider = gr.ImageSlider(label="Before and after", visible=False, interactive=False, max_height=460,
                                    format="png", elem_id="edit-slider", elem_classes=small, buttons=[])  # fmt: skip
            details = Details.build(desk, TAB, "Result", columns=4)

    def follow_kind(kind: str):
        asked = EDIT_KINDS[kind][1] is None
        return gr.Image(visible=PICTURES.get(kind, 1) > 1), gr.Textbox(visible=asked)

    kind.change(follow_kind, kind, [style, prompt], queue=False, show_progress="hidden", api_visibility="private")

    def work(request: gr.Request, image: str, style: str, kind: str, prompt: str, number, locked, *values: Any):
        need(image)
        if PICTURES.get(kind, 1) > 1:
            need(style, "Choose the picture whose style is taken, too.")
        start = seed_of(number, locked)
        with spoken():
            pictures = [load_image(path) for path in (image, style)[: PICTURES.get(kind, 1)]]
            task, settings = Edit(prompt or "", pictures, kind), sampling.settings(values)
        job = desk.start(request, TAB, [task], settings, start)
        hidden = [gr.ImageSlider(visible=False)]
        if (result := (yield from buttons.follow(desk, job, start, besides=hidden))) is None:
            return
        sources = tuple(desk.history(request).source(picture) for picture in pictures)
        paths = desk.keep(request, job, parameters(Editing(prompt or kind, sources, kind)))
        after = result.answers[0]
        before = pictures[0].resize(after.size)
        pair = (figures.enlarged(before), figures.enlarged(after))
        told = figures.done(f"{figures.seconds(result.seconds)}, {result.forwards} forwards.")
        compared = gr.ImageSlider(value=pair, visible=True)
        yield [told, start, *Details.showing(paths), *buttons.free(), compared]

    inputs = [image, style, kind, prompt, *seed.inputs, *sampling.inputs]
    outputs = [live, seed.number, *details.outputs, *buttons.outputs, slider]
    buttons.wire(desk, work, inputs, outputs, prompt)
    return EditTab(details, image)
