"""The two buttons of every tab that makes something: one starts it, the other stops it within a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from dimoo_app.studio.desk import Desk


@dataclass(frozen=True)
class Buttons:
    """Start and stop."""

    start: gr.Button
    stop: gr.Button
    tab: str

    @classmethod
    def build(cls, label: str, tab: str) -> Buttons:
        with gr.Row():
            start = gr.Button(label, variant="primary", scale=3, min_width=120, elem_id=f"{tab}-run")
            stop = gr.Button("Stop", scale=1, min_width=80, interactive=False, elem_id=f"{tab}-stop")
        return cls(start, stop, tab)

    @property
    def outputs(self) -> list[gr.Button]:
        return [self.start, self.stop]

    @staticmethod
    def busy() -> list[gr.Button]:
        return [gr.Button(interactive=False), gr.Button(interactive=True)]

    @staticmethod
    def free() -> list[gr.Button]:
        return [gr.Button(interactive=True), gr.Button(interactive=False)]

    def wire(self, desk: Desk, work: Callable, inputs: Sequence[Any], outputs: Sequence[Any],
             box: gr.Textbox | None = None) -> Any:  # fmt: skip
        """Start `work` by the button or by Enter in `box`; whatever happens the buttons are free again afterwards."""
        begin = [self.start.click, *([box.submit] if box else [])]
        event = gr.on(begin, work, inputs, outputs, show_progress="hidden", trigger_mode="once",
                      api_name=self.tab, concurrency_limit=None)  # fmt: skip
        event.failure(self.free, None, self.outputs, queue=False, api_visibility="private", show_progress="hidden")

        def stop(request: gr.Request) -> None:
            desk.stop(request, self.tab)

        self.stop.click(stop, None, None, queue=False, api_visibility="private", show_progress="hidden")
        return event
