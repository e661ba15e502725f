"""Ask: a conversation about pictures, or about nothing but words. The answer appears as it is decided."""

from __future__ import annotations

from typing import Any

import gradio as gr

from dimoo.images import load_image
from dimoo.tasks import Ask
from dimoo_app.studio import figures, samples
from dimoo_app.studio.controls import Sampling
from dimoo_app.studio.desk import Desk, spoken
from dimoo_app.studio.pieces import so_far
from dimoo_app.studio.running import Buttons

TAB = "ask"
CAPTION = "describe the picture"
HINT = "**Ask about a picture**\n\nAdd one or several on the left, or just talk. The answer appears as it is decided."


def build(desk: Desk) -> gr.Gallery:
    """The tab; returns the pictures that are asked about."""
    with gr.Row():
        with gr.Column(scale=4, min_width=320):
            pictures = gr.Gallery(label="Pictures", type="filepath", columns=2, height=260, object_fit="contain",
                                  interactive=True, file_types=["image"], elem_id="ask-pictures", format="png",
                                  elem_classes=["given", *figures.looks(desk.defaults)])  # fmt: skip
            with gr.Accordion("How to answer", open=False):
                length = gr.Slider(1, max(256, desk.defaults.text_length), desk.defaults.text_length, step=1,
                                   label="Longest answer, tokens")  # fmt: skip
                seed = gr.Number(0, label="Seed", precision=0, minimum=0, info="Matters above temperature 0.")
                sampling = Sampling.build(TAB, desk.defaults, "text")
        with gr.Column(scale=6, min_width=320):
            chat = gr.Chatbot(height=380, placeholder=HINT, elem_id="ask-chat", buttons=["copy"], show_label=False,
                              group_consecutive_messages=False)  # fmt: skip
            question = gr.Textbox(placeholder="what color is the circle?", label="Question", max_lines=4,
                                  elem_id="ask-question")  # fmt: skip
            buttons = Buttons.build("Ask", TAB)
            with gr.Row():
                caption = gr.Button("Describe it", size="sm", elem_id="ask-caption")
                clear = gr.Button("New conversation", size="sm", elem_id="ask-clear")
    samples.row(TAB, samples.QUESTIONS, lambda path, words: ([path], words, []), [pictures, question, chat])

    def work(request: gr.Request, said: list[dict], question: str, shown, length: int, number, *values: Any):
        with spoken():
            images = [load_image(path) for path, _ in shown or []]
            task = Ask(question, images, turns(said), int(length))
            settings = sampling.settings(values)
        said = [*said, {"role": "user", "content": question}]
        job = desk.start(request, TAB, [task], settings, int(number or 0))
        sample = job.samples[0]
        for _ in desk.follow(job):
            words = "…" if sample.ids is None else so_far(desk.codec, sample.ids)
            yield [[*said, answer(words)], "", *buttons.busy()]
        result = desk.result(job)
        words = result.answers[0] or "(an empty answer)" if result else "(stopped)"
        yield [[*said, answer(words)], "", *buttons.free()]

    inputs = [chat, question, pictures, length, seed, *sampling.inputs]
    outputs = [chat, question, *buttons.outputs]
    buttons.wire(desk, work, inputs, outputs, question)

    def describe(request: gr.Request, said, shown, length: int, number, *values: Any):
        if not shown:
            raise gr.Error("Add a picture first.", print_exception=False)
        yield from work(request, said, CAPTION, shown, length, number, *values)

    given = [chat, pictures, length, seed, *sampling.inputs]
    buttons.begin([caption.click], describe, given, outputs, api_visibility="private")
    clear.click(lambda: ([], []), None, [chat, pictures], queue=False, show_progress="hidden", api_visibility="private")
    return pictures


def answer(words: str) -> dict:
    return {"role": "assistant", "content": words}


def turns(said: list[dict]) -> list[tuple[str, str]]:
    """(question, answer) pairs of what was said before."""
    texts = [_text(one["content"]) for one in said]
    return list(zip(texts[0::2], texts[1::2], strict=False))


def _text(content: Any) -> str:
    """The chat gives words back as they are or as parts."""
    if isinstance(content, list):
        return "".join(_text(part) for part in content)
    return content.get("text", "") if isinstance(content, dict) else str(content)
