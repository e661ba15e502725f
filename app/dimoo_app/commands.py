"""What `dimoo studio` and `dimoo serve` do."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")      # read when gradio is imported

from dimoo.cli import console
from dimoo.cli.flags import Machine
from dimoo.cli.serving import Api, Serving
from dimoo.cli.session import Session, load
from dimoo.engine import Engine, Limits

STUDIO_PORT, API_PORT = 7860, 8000


def studio(serving: Serving, machine: Machine, share: bool = False, browser: bool = True) -> None:
    """Run the studio until it is stopped."""
    began, logins = time.perf_counter(), read_logins(serving.auth)
    if share and not logins:
        raise ValueError("--share opens the studio to everybody with the address: give --auth USER:PASSWORD as well")
    from dimoo_app.studio import History, build, dress

    session, engine = start(serving, machine)
    with engine:
        page = build(session, engine, History(serving.history))
        _, address, public = page.launch(
            server_name=serving.host, server_port=serving.port or STUDIO_PORT, auth=logins, share=share,
            inbrowser=browser, prevent_thread_lock=True, quiet=True, **dress(),
            _frontend=False,                    # or it visits itself and gives up behind a proxy, or after 3 seconds
        )  # fmt: skip
        console.note(f"studio with {session.model}: {public or address}  ({time.perf_counter() - began:.1f} s); "
                     f"pictures in {serving.history}; Ctrl-C ends")  # fmt: skip
        page.block_thread()


def serve(serving: Serving, api: Api, machine: Machine) -> None:
    """Run the API until it is stopped, then finish or refuse what was taken."""
    from dimoo_app.api import Service, create_app
    from dimoo_app.server import Server

    logins = read_logins(serving.auth)
    session, engine = start(serving, machine)
    service = Service(session, engine, keys=tuple(api.api_key or ()))
    app = create_app(service)
    shown = api.studio and bool(logins or not service.keys)
    if shown:
        from dimoo_app.studio import History, build, mount

        app = mount(app, build(session, engine, History(serving.history)), logins)
    elif api.studio:
        console.note("the studio is not shown: it would be a way around the keys; give --auth USER:PASSWORD")
    port = serving.port or API_PORT
    console.note(f"API of {service.name}: http://{serving.host}:{port}/v1" + (", studio at /" if shown else ""))
    Server(app, service, serving.host, port, api.grace).run()


def start(serving: Serving, machine: Machine) -> tuple[Session, Engine]:
    limits = Limits(serving.max_queue, serving.max_batch)
    session = load(machine)
    return session, Engine(session.pipeline, limits)


def read_logins(texts: Sequence[str] | None) -> list[tuple[str, str]] | None:
    """ "user:password" -> (user, password). Raises ValueError for what is none."""
    pairs = [text.partition(":") for text in texts or ()]
    if wrong := [text for text, (user, _, password) in zip(texts or (), pairs, strict=True) if not (user and password)]:
        raise ValueError(f"--auth is USER:PASSWORD, got {wrong[0]!r}")
    return [(user, password) for user, _, password in pairs] or None
