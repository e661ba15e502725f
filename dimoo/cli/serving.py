"""`dimoo studio` and `dimoo serve`: their flags. The servers themselves live in another package."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dimoo.cli.extras import reach
from dimoo.cli.flags import Machine

_place = partial(typer.Option, rich_help_panel="Where it listens, and who may come in")
_load = partial(typer.Option, rich_help_panel="Load")


@dataclass(frozen=True)
class Serving:
    """Flags that both servers have."""

    host: Annotated[str, _place(help="0.0.0.0 lets other machines in.")] = "127.0.0.1"
    port: Annotated[int, _place(help="Port of the page.", show_default="7860 for the studio, 8000 for the API")] = 0
    auth: Annotated[
        list[str] | None, _place(metavar="USER:PASSWORD", help="Who may use the studio; several are allowed.")
    ] = None
    history: Annotated[Path, typer.Option(help="Folder where the studio keeps its pictures.")] = Path("out/studio")
    max_queue: Annotated[int, _load(help="Pictures and answers that may wait; more are refused.")] = 256
    max_batch: Annotated[int, _load(help="Pictures or answers that are made together.")] = 16


@dataclass(frozen=True)
class Api:
    """Flags of the HTTP API."""

    api_key: Annotated[
        list[str] | None,
        _place(metavar="KEY", envvar="DIMOO_API_KEY", help="A bearer key; without any, everybody may ask."),
    ] = None
    studio: Annotated[bool, typer.Option("--studio/--no-studio", help="Also show the studio at /.")] = True
    grace: Annotated[float, _load(help="Seconds to finish what was taken when the server is stopped.")] = 30.0


def studio(
    serving: Serving,
    machine: Machine,
    share: Annotated[bool, _place("--share", help="Also open a public address through gradio's servers.")] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Open the studio: draw, edit, paint, ask and compare in the browser, and watch the masks go."""
    reach("dimoo_app.commands:studio", "app")(serving, machine, share, browser)


def serve(serving: Serving, api: Api, machine: Machine) -> None:
    """Serve an OpenAI-compatible HTTP API, with the studio at /.

    /v1/images/generations, /v1/images/edits, /v1/chat/completions, /v1/models, /healthz, /metrics; see /docs.
    """
    reach("dimoo_app.commands:serve", "app")(serving, api, machine)
