"""A row of pictures, and what one knows about the chosen one: its parameters, and where it can be sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from dimoo_app.studio import figures
from dimoo_app.studio.desk import Desk
from dimoo_app.studio.history import handed_out

FIRST = ("prompt", "task", "edit", "seed", "index", "preset", "num_inference_steps", "guidance_scale",
         "image_guidance_scale", "temperature", "width", "height", "forwards")  # fmt: skip
"""Parameters in the order people look for them; the others are folded away."""


@dataclass(frozen=True)
class Details:
    """A gallery with the facts of the picture that was clicked."""

    gallery: gr.Gallery
    paths: gr.State
    chosen: gr.State
    panel: gr.Column
    sends: dict[str, gr.Button]

    @classmethod
    def build(cls, desk: Desk, tab: str, label: str, columns: int = 3, height: int | str | None = None) -> Details:
        looks = ["results", *figures.looks(desk.defaults)]
        gallery = gr.Gallery(label=label, columns=columns, height=height, object_fit="contain", format="png",
                             buttons=["download", "fullscreen"], elem_id=f"{tab}-gallery", elem_classes=looks,
                             interactive=False, show_label=bool(label), visible=False)  # fmt: skip
        paths, chosen = gr.State([]), gr.State(None)
        with gr.Column(visible=False, elem_id=f"{tab}-details") as panel:
            with gr.Row():
                sends = {where: gr.Button(f"Send to {where}", size="sm", min_width=90, elem_id=f"{tab}-to-{where}")
                         for where in SENDS}  # fmt: skip
            table = gr.HTML(padding=True)
            with gr.Accordion("All parameters", open=False):
                rest = gr.HTML(padding=True)

        def choose(request: gr.Request, paths: list[str], event: gr.SelectData):
            path = paths[event.index]
            said = desk.history(request).parameters(path)
            first = {name: said[name] for name in FIRST if name in said}
            others = {name: value for name, value in said.items() if name not in FIRST}
            return path, gr.Column(visible=True), figures.facts(first), figures.facts({**others, "file": path})

        gallery.select(choose, paths, [chosen, panel, table, rest], queue=False, show_progress="hidden",
                       api_visibility="private")  # fmt: skip
        return cls(gallery, paths, chosen, panel, sends)

    @property
    def outputs(self) -> list[Any]:
        """What `showing` gives values for."""
        return [self.gallery, self.paths, self.panel]

    @staticmethod
    def left() -> list[Any]:
        """Values for `outputs` that change nothing."""
        return [gr.skip()] * 3

    @staticmethod
    def showing(paths: Sequence[Path | str]) -> list[Any]:
        """Values for `outputs`: these pictures, none of them chosen. Copies of the files, so a download is exact."""
        listed = [str(path) for path in paths]
        gallery = gr.Gallery(value=[handed_out(path) for path in listed], selected_index=None, visible=bool(listed))
        return [gallery, listed, gr.Column(visible=False)]


SENDS = ("edit", "paint", "ask")
