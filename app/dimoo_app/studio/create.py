"""Create: words to pictures, appearing token by token."""

from __future__ import annotations

from typing import Any

import gradio as gr

from dimoo.cli.requests import Drawing, parameters
from dimoo.tasks import TextToImage
from dimoo_app.studio import figures, samples
from dimoo_app.studio.controls import Sampling, Seed, seed_of, sizes
from dimoo_app.studio.desk import Desk, spoken
from dimoo_app.studio.details import Details
from dimoo_app.studio.running import Buttons

TAB = "create"
EMPTY = figures.empty("Nothing drawn yet", "Say what you want to see and press Enter.")


def build(desk: Desk) -> Details:
    shapes = sizes(desk.defaults, desk.codec.images.ratio)
    with gr.Row(elem_classes="split"):
        with gr.Column(scale=5, min_width=320, elem_classes="asked"):
            prompt = gr.Textbox(label="What to draw", placeholder="a red circle to the left of a blue square",
                                max_lines=4, autofocus=True, elem_id="create-prompt")  # fmt: skip
            buttons = Buttons.build("Draw", TAB)
            with gr.Column(elem_classes="later"):
                with gr.Row():
                    size = gr.Dropdown(list(shapes), value=next(iter(shapes)), label="Width × height", min_width=130)
                    count = gr.Slider(1, 9, 1, step=1, label="Pictures", min_width=130, elem_id="create-count")
                seed = Seed.build(TAB)
                with gr.Accordion("How to draw it", open=False, elem_id="create-more"):
                    sure = gr.Checkbox(False, label="Show how sure the model was of each token", elem_id="create-sure")
                    sampling = Sampling.build(TAB, desk.defaults, search=True)
                samples.row(TAB, samples.DRAWINGS, lambda _, words: words, [prompt])
        with gr.Column(scale=7, min_width=320, elem_classes="made"):
            live = gr.HTML(EMPTY, elem_id="create-live", padding=False)
            details = Details.build(desk, TAB, "Pictures")

    def draw(request: gr.Request, prompt: str, size: str, count: int, number, locked, sure: bool, *values: Any):
        start, (height, width) = seed_of(number, locked), shapes[size]
        with spoken():
            task, settings = TextToImage(prompt, height, width), sampling.settings(values)
        job = desk.start(request, TAB, [task] * int(count), settings, start)
        if (result := (yield from buttons.follow(desk, job, start, sure))) is None:
            return
        paths = desk.keep(request, job, parameters(Drawing(prompt, height, width)))
        told = f"{figures.seconds(result.seconds)}, {result.forwards} forwards each. Click a picture for more."
        over = figures.done(told)
        if sure:
            maps = [figure for sample in job.samples for figure in desk.frames(sample, True)[1:]]
            over = figures.stage(maps, over)
        yield [over, start, *Details.showing(paths), *buttons.free()]

    inputs = [prompt, size, count, *seed.inputs, sure, *sampling.inputs]
    outputs = [live, seed.number, *details.outputs, *buttons.outputs]
    buttons.wire(desk, draw, inputs, outputs, prompt)
    return details
