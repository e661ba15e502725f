"""Examples with thumbnails: small pictures that ship with the studio, of what dimoo-tiny can draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

FOLDER = Path(__file__).parent / "pictures"

DRAWINGS = (
    ("circle", "a red circle"),
    ("two", "a green star and a blue square"),
    ("hearts", "three yellow hearts"),
    ("beside", "a purple triangle and an orange cross"),
    ("gray", "a blue heart on a gray background"),
)
EDITS = (
    ("circle", "make the circle green"),
    ("two", "remove the star"),
    ("beside", "change the background to black"),
    ("hearts", "add a blue star"),
)
HOLES = (("circle", "a red circle and a blue star"), ("two", "a green star and a purple heart"))
QUESTIONS = (
    ("circle", "what color is the circle?"),
    ("two", "where is the star?"),
    ("hearts", "what is the background?"),
    ("beside", "what is in the picture?"),
)
"""(picture, words) of each tab."""


def picture(name: str) -> str:
    return str(FOLDER / f"{name}.png")


def row(tab: str, given: Sequence[tuple[str, str]], choose: Callable[[str, str], Any], outputs: Sequence[Any]) -> None:
    """A row of thumbnails; clicking one calls `choose` with its picture's path and words."""
    gr.HTML('<div class="quiet">Or try one of these</div>', padding=False)
    gallery = gr.Gallery(
        [(picture(name), words) for name, words in given], show_label=False, columns=5, allow_preview=False,
        object_fit="contain", elem_classes=["small-pixels", "samples"], elem_id=f"{tab}-samples", buttons=[],
        interactive=False, format="png",
    )  # fmt: skip

    def chosen(event: gr.SelectData):
        name, words = given[event.index]
        return choose(picture(name), words)

    gallery.select(chosen, None, outputs, queue=False, show_progress="hidden", api_visibility="private")
