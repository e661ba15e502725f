"""History: everything that was made, also before the last restart."""

from __future__ import annotations

import gradio as gr

from dimoo_app.studio import figures
from dimoo_app.studio.desk import Desk
from dimoo_app.studio.details import Details

EMPTY = figures.empty("No pictures yet", "What you make in the other tabs is kept here, also after a restart.")
SHOWN = 120


def build(desk: Desk, tab: gr.Tab) -> Details:
    words = gr.Textbox(label="Find in prompts", placeholder="all pictures", elem_id="history-words", max_lines=1)
    nothing = gr.HTML(EMPTY, elem_id="history-empty", padding=False)
    details = Details.build(desk, "history", "", columns=6)

    def read(request: gr.Request, words: str):
        paths = desk.history(request).recent(SHOWN, words or "")
        gallery, listed, panel = Details.showing(paths)
        return [gr.HTML(visible=not paths), gallery, listed, panel]

    quiet = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    for event in (tab.select, words.change):
        event(read, words, [nothing, *details.outputs], **quiet)
    return details
