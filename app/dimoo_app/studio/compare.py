"""Compare: one prompt and one seed, sampled in several ways, side by side with what each costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import gradio as gr

from dimoo.cli.requests import Drawing, parameters
from dimoo.engine import Sample
from dimoo.presets import PRESETS
from dimoo.settings import Defaults, Settings
from dimoo.tasks import Text, TextToImage
from dimoo_app.studio import figures
from dimoo_app.studio.controls import Seed, seed_of
from dimoo_app.studio.desk import Desk, spoken
from dimoo_app.studio.figures import Figure, Passage
from dimoo_app.studio.pieces import so_far
from dimoo_app.studio.recipes import Fields, recipes
from dimoo_app.studio.running import Buttons

TAB = "compare"
EMPTY = figures.empty("Nothing compared yet", "Choose two ways or more, and a prompt; every way gets the same seed.")
PICTURES, WORDS = "Pictures", "Words"
EXAMPLES = {PICTURES: "a red circle and a blue star", WORDS: "what color is grass?"}


def variants(defaults: Defaults) -> dict[str, Fields]:
    """Name -> fields of `Settings`: the presets of the core, and the knobs that trade speed for quality."""
    steps = defaults.steps
    counts = [count for count in (steps // 2, steps // 4, steps // 8) if count]
    fewer = {f"{count} steps": {"num_inference_steps": count} for count in counts}
    found = {f"the model's own ({steps} steps)": {}, **{name: {"preset": name} for name in PRESETS}, **fewer}
    return {**found, "max-logit cache": {"cache": "max-logit"}, "order fades to certain": {"anneal": "linear"},
            "likeliest token": {"temperature": 0.0}, "best of 4 tries": {"best_of": 4},
            "best of 4, hierarchical": {"best_of": 4, "search": "hierarchical"}}  # fmt: skip


def first(table: Mapping[str, Fields]) -> list[str]:
    """What is compared unless people choose: the plain way and the two quickest presets, or what comes first."""
    plain, *others = table
    presets = [name for name in others if name in PRESETS]
    return [plain, *(presets[-2:] or others[:2])]


def build(desk: Desk) -> None:
    size, length = (desk.defaults.height, desk.defaults.width), desk.defaults.text_length
    texts: dict[str, Callable[[int], Fields]] = recipes(desk.defaults)
    tables = {PICTURES: variants(desk.defaults), WORDS: {name: make(length) for name, make in texts.items()}}
    with gr.Row():
        with gr.Column(scale=4, min_width=280):
            prompt = gr.Textbox(label="Prompt", placeholder=EXAMPLES[PICTURES], elem_id="compare-prompt")
        with gr.Column(scale=1, min_width=200):
            what = gr.Radio(list(tables), value=PICTURES, label="What is made", elem_id="compare-what")
    ways = [gr.CheckboxGroup(list(table), value=first(table), label="Ways", visible=name == PICTURES,
                             elem_id=f"compare-ways-{name.lower()}") for name, table in tables.items()]  # fmt: skip
    with gr.Row():
        with gr.Column(scale=2, min_width=280):
            seed = Seed.build(TAB)
        with gr.Column(scale=1, min_width=280):
            buttons = Buttons.build("Compare", TAB)
    live = gr.HTML(EMPTY, elem_id="compare-live", padding=False)

    def offer(what: str):
        return [*(gr.CheckboxGroup(visible=name == what) for name in tables), gr.Textbox(placeholder=EXAMPLES[what])]

    def work(request: gr.Request, prompt: str, what: str, pictures: list[str], words: list[str], number, locked):
        start, result_of = seed_of(number, locked), Figure if what == PICTURES else Passage
        ways = pictures if what == PICTURES else words
        with spoken():
            if not ways:
                raise ValueError("choose at least one way")
            task = TextToImage(prompt, *size) if what == PICTURES else Text(prompt, length)
            chosen = {name: Settings(**tables[what][name]) for name in ways}
        shown: list[Figure | Passage] = []
        for number, (name, setting) in enumerate(chosen.items()):
            job = desk.start(request, TAB, [task], setting, start)
            total = f"{number + 1} of {len(chosen)}: {name}"
            for _ in desk.follow(job):
                bar = figures.meter(number * job.total + job.step, len(chosen) * job.total, total)
                yield [figures.stage([*shown, *unfinished(desk, job.samples[0], name)], bar), start, *buttons.busy()]
            if (result := desk.result(job)) is None:
                yield [figures.stage(shown, figures.done(f"stopped at {name}")), start, *buttons.free()]
                return
            if what == PICTURES:
                desk.keep(request, job, parameters(Drawing(prompt, *size)))
            cost = f"{name} — {result.seconds:.2f} s, {result.forwards} forwards"
            shown.append(result_of(result.answers[0], cost))
        yield [figures.stage(shown, figures.done(f"“{prompt}”, seed {start}")), start, *buttons.free()]

    what.change(offer, what, [*ways, prompt], queue=False, show_progress="hidden", api_visibility="private")
    buttons.wire(desk, work, [prompt, what, *ways, *seed.inputs], [live, seed.number, *buttons.outputs], prompt)


def unfinished(desk: Desk, sample: Sample, caption: str) -> list[Figure | Passage]:
    """What is there of a sample so far."""
    if sample.task.kind != "text":
        return [Figure(one.picture, caption) for one in desk.frames(sample, False)]
    return [] if sample.ids is None else [Passage(so_far(desk.codec, sample.ids), caption)]
