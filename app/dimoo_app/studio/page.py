"""The page: a head, the tabs, and what leads from one to another."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from dimoo.cli.session import Session
from dimoo.engine import Engine
from dimoo_app.studio import ask, compare, create, edit, paint, past, text
from dimoo_app.studio.desk import Desk
from dimoo_app.studio.details import Details
from dimoo_app.studio.history import History, handed_out

CACHE = (3600, 86400)
"""Seconds: how often Gradio's copies of files are looked through, and how old they may get."""
AT_ONCE = 64
"""Browsers that may be answered at the same time; the engine's own queue is the limit that counts."""


def build(session: Session, engine: Engine, history: History) -> gr.Blocks:
    """The studio of one model."""
    desk = Desk(session, engine, history)
    with gr.Blocks(title="DiMOO studio", analytics_enabled=False, delete_cache=CACHE) as page:
        gr.HTML(head(session))
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab("Create", id="create"):
                created = create.build(desk)
            with gr.Tab("Edit", id="edit"):
                edited = edit.build(desk)
            with gr.Tab("Paint", id="paint"):
                painted = paint.build(desk)
            with gr.Tab("Ask", id="ask"):
                asked = ask.build(desk)
            with gr.Tab("Text", id="text"):
                text.build(desk)
            with gr.Tab("Compare", id="compare"):
                compare.build(desk)
            with gr.Tab("History", id="history") as tab:
                shown = past.build(desk, tab)
        targets: dict[str, tuple[Any, list[Any]]] = {
            "edit": (handed_out, [edited.image]),
            "paint": (painted.opened, [painted.editor, painted.original]),
            "ask": (lambda path: [handed_out(path)], [asked]),
        }
        for details in (created, edited.details, painted.details, shown):
            _lead(details, tabs, targets)
        page.unload(desk.leave)
    page.queue(default_concurrency_limit=AT_ONCE)
    return page


def _lead(details: Details, tabs: gr.Tabs, targets: dict[str, tuple[Any, list[Any]]]) -> None:
    """Wire the buttons that send the chosen picture to another tab."""
    for where, (value, outputs) in targets.items():

        def send(path: str, where: str = where, value=value):
            given = value(path)
            return [*(given if isinstance(given, tuple) else (given,)), gr.Tabs(selected=where)]

        details.sends[where].click(send, details.chosen, [*outputs, tabs], queue=False, show_progress="hidden",
                                   api_visibility="private")  # fmt: skip


def head(session: Session) -> str:
    model = Path(session.model).name if Path(session.model).is_dir() else session.model
    place = f"{model} on {session.device}, {session.dtype}"
    return f'<div id="head"><h1>DiMOO studio</h1><span class="model">{escape(place)}</span></div>'
