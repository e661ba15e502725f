"""Text: the decoding canvas. Watch tokens being written in any order, keep some, open others, run again."""

from __future__ import annotations

from typing import Any

import gradio as gr
import torch

from dimoo.blocks import whole_blocks
from dimoo.settings import Settings
from dimoo.tasks.text import within
from dimoo_app.studio import figures
from dimoo_app.studio.desk import Desk, spoken
from dimoo_app.studio.pieces import pieces
from dimoo_app.studio.recipes import Kept, kept, read_marks, recipes, say_marks
from dimoo_app.studio.running import Buttons

TAB = "text"
NEW, OLD, OPEN, KEPT, MARKED = "just written", "written", "open", "kept", "marked"
COLORS = {NEW: "#0d9488", OLD: "#64748b", OPEN: "#cbd5e1", KEPT: "#b45309", MARKED: "#7c3aed"}
EXAMPLES = ("what color is grass?", "sudoku 1030 0241 4000 0300")
EMPTY = figures.empty("An empty canvas", "Write a request and press Enter: the answer is written in no fixed order.")


def build(desk: Desk) -> None:
    table, longest = recipes(desk.defaults), max(256, desk.defaults.text_length)
    state = gr.State(None)                      # (frames [(T,)], kept positions) of the last run
    with gr.Row(elem_classes="split"):
        with gr.Column(scale=4, min_width=320, elem_classes="asked"):
            prompt = gr.Textbox(label="Request", placeholder="what color is grass?", max_lines=6,
                                elem_id="text-prompt")  # fmt: skip
            recipe = gr.Dropdown(list(table), value=next(iter(table)), label="Recipe", elem_id="text-recipe",
                                 info="Which tokens are written when.")  # fmt: skip
            buttons = Buttons.build("Write", TAB)
            with gr.Column(elem_classes="later"):
                with gr.Accordion("How to write it", open=False):
                    length = gr.Slider(1, longest, desk.defaults.text_length, step=1, label="Tokens")
                    temperature = gr.Slider(0, 2, 0, step=0.05, label="Temperature",
                                            info="0 takes the likeliest token.")  # fmt: skip
                    seed = gr.Number(0, label="Seed", precision=0, minimum=0, info="Matters above temperature 0.")
                gr.Examples([[words] for words in EXAMPLES], prompt, label="Or try one of these")
        with gr.Column(scale=7, min_width=320, elem_classes="made"):
            live = gr.HTML(EMPTY, elem_id="text-live", padding=False)
            with gr.Column(visible=False) as panel:
                canvas = gr.HighlightedText(label="Canvas", color_map=COLORS, combine_adjacent=False, show_legend=True,
                                            show_inline_category=False, elem_id="text-canvas")  # fmt: skip
                back = gr.Slider(0, 1, 1, step=1, label="Look back: step", interactive=False, elem_id="text-back")
                marks = gr.Textbox(label="Marked tokens", placeholder="3-5, 9", elem_id="text-marks",
                                   info="Click tokens on the canvas, or write spans.")  # fmt: skip
                with gr.Row():
                    lock = gr.Button("Keep these, write the rest again", size="sm", elem_id="text-lock")
                    reopen = gr.Button("Open these, keep the rest", size="sm", elem_id="text-reopen")
                answer = gr.Textbox(label="Answer", interactive=False, elem_id="text-answer", buttons=["copy"])

    def run(request: gr.Request, keep: dict[int, int], prompt, recipe, length, temperature, number):
        with spoken():
            length = whole_blocks(int(length), desk.defaults.block_length)
            task = Kept(prompt, length=length, keep=keep)
            hot = {"temperature": temperature} if temperature else {}
            chosen = Settings(**{**table[recipe](length), **hot})
        job = desk.start(request, TAB, [task], chosen, int(number or 0), traced=True)
        blank, trace = task.prepare(desk.codec).answer, job.samples[0].trace
        held = set(keep)
        for _ in desk.follow(job):
            shown = view(desk, [blank, *trace], held)
            yield [desk.meter(job), shown, gr.skip(), "", gr.skip(), gr.Column(visible=True), *buttons.busy()]
        result, frames = desk.result(job), [blank, *trace]
        told = f"{figures.seconds(result.seconds)}, {result.forwards} forwards" if result else "stopped"
        told += f"; {len(held)} of {task.length} tokens kept" if held else ""
        last = len(frames) - 1
        slider = gr.Slider(minimum=0, maximum=max(1, last), value=last, interactive=last > 0)
        words = result.answers[0] if result else ""
        shown = view(desk, frames, held)
        yield [figures.done(told), shown, slider, words, (frames, held), gr.skip(), *buttons.free()]

    def write(request: gr.Request, prompt: str, recipe: str, length: int, temperature: float, number):
        yield from run(request, {}, prompt, recipe, length, temperature, number)

    def again(opening: bool):
        def work(request: gr.Request, last, marks: str, prompt, recipe, length, *given: Any):
            if last is None:
                raise gr.Error("Write something first, then mark tokens of it.", print_exception=False)
            final = within(desk.codec, last[0][-1]).tolist()
            with spoken():
                marked = read_marks(marks, len(final))
                if not marked:
                    raise ValueError("no tokens are marked: click some on the canvas, or write positions")
                keep = kept(final, marked, opening, desk.codec.vocab.mask)
                if len(keep) == len(final):
                    raise ValueError("every token would be kept: mark fewer, so that something is left to write")
            yield from run(request, keep, prompt, recipe, len(final), *given)

        return work

    def click(last, marks: str, event: gr.SelectData):
        """Mark a token, or take its mark away."""
        if last is None:
            return gr.skip(), gr.skip()
        with spoken():
            marked = read_marks(marks, len(within(desk.codec, last[0][-1]))) ^ {event.index + 1}
        return say_marks(marked), view(desk, last[0], last[1], marked)

    inputs = [prompt, recipe, length, temperature, seed]
    outputs = [live, canvas, back, answer, state, panel, *buttons.outputs]
    buttons.wire(desk, write, inputs, outputs, prompt)
    quiet = {"show_progress": "hidden", "api_visibility": "private"}
    for button, opening in ((lock, False), (reopen, True)):
        buttons.begin([button.click], again(opening), [state, marks, *inputs], outputs, api_visibility="private")
    canvas.select(click, [state, marks], [marks, canvas], queue=False, **quiet)
    back.release(lambda last, step: view(desk, last[0][: int(step) + 1], last[1]) if last else gr.skip(),
                 [state, back], canvas, queue=False, **quiet)  # fmt: skip


def view(desk: Desk, frames: list[torch.Tensor], held: set[int], marked: set[int] = frozenset()) -> list[tuple]:
    """The last frame as (text, label) of each token; what the frame before did not have is new."""
    now, before = (within(desk.codec, frames[at]).tolist() for at in (-1, max(-2, -len(frames))))
    shown = []
    for place, piece in enumerate(pieces(desk.codec, frames[-1])):
        changed = now[place] != before[place]
        label = OPEN if piece.open else KEPT if place in held else NEW if changed else OLD
        shown.append((piece.text or "·", MARKED if place + 1 in marked else label))
    return shown
