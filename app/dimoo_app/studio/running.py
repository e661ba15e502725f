"""The two buttons of every tab that makes something: one starts it, the other stops it within a step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from dimoo.engine import Job, Result
from dimoo_app.studio.desk import Desk
from dimoo_app.studio.details import Details


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

    def follow(
        self, desk: Desk, job: Job, start: int, sure: bool = False, besides: Sequence[Any] = ()
    ) -> Generator[list, None, Result | None]:
        """The frames of a tab that draws, whose outputs are the live picture, the seed, the details, these buttons and
        what is besides; returns the result, None when the job was stopped."""
        for _ in desk.follow(job):
            yield [desk.show(job, sure), start, *Details.left(), *self.busy(), *besides]
        if (result := desk.result(job)) is None:
            yield [desk.stopped(job), start, *Details.left(), *self.free(), *besides]
        return result

    def begin(self, triggers: Sequence[Any], work: Callable, inputs: Sequence[Any], outputs: Sequence[Any], **named):
        """Start `work` by any of the triggers; whatever happens the buttons are free again afterwards."""
        event = gr.on(triggers, work, inputs, outputs, show_progress="hidden", concurrency_limit=None, **named)
        event.failure(self.free, None, self.outputs, queue=False, api_visibility="private", show_progress="hidden")

    def wire(self, desk: Desk, work: Callable, inputs: Sequence[Any], outputs: Sequence[Any],
             box: gr.Textbox | None = None) -> None:  # fmt: skip
        """Start `work` by the button or by Enter in `box`, and stop it by the other button."""
        triggers = [self.start.click, *([box.submit] if box else [])]
        self.begin(triggers, work, inputs, outputs, trigger_mode="once", api_name=self.tab)

        def stop(request: gr.Request) -> None:
            desk.stop(request, self.tab)

        self.stop.click(stop, None, None, queue=False, api_visibility="private", show_progress="hidden")
