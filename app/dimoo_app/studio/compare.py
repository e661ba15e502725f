"""Compare: one prompt and one seed, sampled in several ways, side by side with what each costs."""

from __future__ import annotations

from typing import Any

import gradio as gr

from dimoo.cli.requests import Drawing, parameters
from dimoo.presets import PRESETS
from dimoo.settings import Defaults, Settings
from dimoo.tasks import TextToImage
from dimoo_app.studio import figures
from dimoo_app.studio.controls import Seed, seed_of
from dimoo_app.studio.desk import Desk, spoken
from dimoo_app.studio.figures import Figure
from dimoo_app.studio.running import Buttons

TAB = "compare"
EMPTY = figures.empty("Nothing compared yet", "Choose two ways or more, and a prompt; every way gets the same seed.")


def variants(defaults: Defaults) -> dict[str, dict[str, Any]]:
    """Name -> fields of `Settings`: the presets of the core, and the knobs that trade speed for quality."""
    steps = defaults.steps
    counts = [count for count in (steps // 2, steps // 4, steps // 8) if count]
    fewer = {f"{count} steps": {"num_inference_steps": count} for count in counts}
    found = {f"the model's own ({steps} steps)": {}, **{name: {"preset": name} for name in PRESETS}, **fewer}
    return {**found, "max-logit cache": {"cache": "max-logit"}, "order fades to certain": {"anneal": "linear"},
            "likeliest token": {"temperature": 0.0}, "best of 4 tries": {"best_of": 4},
            "best of 4, hierarchical": {"best_of": 4, "search": "hierarchical"}}  # fmt: skip


def build(desk: Desk) -> None:
    table = variants(desk.defaults)
    prompt = gr.Textbox(label="What to draw", placeholder="a red circle and a blue star", elem_id="compare-prompt")
    ways = gr.CheckboxGroup(list(table), value=list(table)[:3], label="Ways", elem_id="compare-ways")
    with gr.Row():
        with gr.Column(scale=2, min_width=280):
            seed = Seed.build(TAB)
        with gr.Column(scale=1, min_width=280):
            buttons = Buttons.build("Compare", TAB)
    live = gr.HTML(EMPTY, elem_id="compare-live")

    def work(request: gr.Request, prompt: str, ways: list[str], number, locked):
        start, size = seed_of(number, locked), (desk.defaults.height, desk.defaults.width)
        with spoken():
            if not ways:
                raise ValueError("choose at least one way")
            task = TextToImage(prompt, *size)
            chosen = {name: Settings(**table[name]) for name in ways}
        shown: list[Figure] = []
        for number, (name, setting) in enumerate(chosen.items()):
            job = desk.start(request, TAB, [task], setting, start)
            total = f"{number + 1} of {len(chosen)}: {name}"
            for _ in desk.follow(job):
                now = [Figure(one.picture, name) for one in desk.frames(job.samples[0], False)]
                bar = figures.meter(number * job.total + job.step, len(chosen) * job.total, total)
                yield [figures.stage([*shown, *now], bar), start, *buttons.busy()]
            if (result := desk.result(job)) is None:
                yield [figures.stage(shown, figures.done(f"stopped at {name}")), start, *buttons.free()]
                return
            desk.keep(request, job, parameters(Drawing(prompt, *size)))
            cost = f"{name} — {result.seconds:.2f} s, {result.forwards} forwards"
            shown.append(Figure(result.answers[0], cost))
        yield [figures.stage(shown, figures.done(f"“{prompt}”, seed {start}")), start, *buttons.free()]

    buttons.wire(desk, work, [prompt, ways, *seed.inputs], [live, seed.number, *buttons.outputs], prompt)
