"""How long people wait: `python -m dimoo_app.bench`. One run prints every number of the README's studio section.

    first picture   from `dimoo studio` to a picture on its page, imports and loading included
    a picture       of 16 steps, through a server that runs
    throughput      requests a second from several clients, batches of 1 against batches of up to 16
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

PROMPT = "a red circle"
BATCHED = 16


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="dimoo-tiny")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    given = parser.parse_args(arguments)
    rows = {
        "first_picture_seconds": median(first_picture(given.model) for _ in range(given.repeats)),
        **served(given.model, given.requests, given.clients, given.repeats),
    }
    rows |= {"machine": platform.machine(), "cores": os.cpu_count(), "model": given.model,
             "requests": given.requests, "clients": given.clients, "repeats": given.repeats}  # fmt: skip
    for name, value in rows.items():
        print(f"{name:32} {value:.2f}" if isinstance(value, float) else f"{name:32} {value}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")


def first_picture(model: str) -> float:
    """Seconds from the command to a finished picture on the page, asked for as the page does."""
    from gradio_client import Client

    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dimoo", "studio", "--model", model, "--port", str(port), "--no-browser",
                   "--history", folder]  # fmt: skip
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not listens(port):
                if process.poll() is not None:
                    raise RuntimeError(f"the studio ended with code {process.returncode}")
                time.sleep(0.05)
            client = Client(f"http://127.0.0.1:{port}", verbose=False, httpx_kwargs={"timeout": 120})
            client.predict(PROMPT, api_name="/create")
            return time.perf_counter() - began
        finally:
            process.terminate()
            process.wait()


def served(model: str, requests: int, clients: int, repeats: int) -> dict[str, Any]:
    """A 16-step picture, and throughput with batches of one and of many, alternating."""
    from dimoo.cli.flags import Machine
    from dimoo.cli.session import load
    from dimoo.engine import Engine, Limits

    session = load(Machine(model=model))
    with Engine(session.pipeline, Limits(queue=requests)) as engine:
        run(session, engine, 1, 1)                                              # warm
        waits = [run(session, engine, 1, 1, {"steps": 16}) for _ in range(repeats)]
    rates: dict[int, list[float]] = {1: [], BATCHED: []}
    for _ in range(repeats):
        for batch, found in rates.items():
            with Engine(session.pipeline, Limits(queue=requests, batch=batch)) as engine:
                found.append(requests / run(session, engine, requests, clients))
    single, many = (median(rates[batch]) for batch in (1, BATCHED))
    return {"picture_16_steps_seconds": median(waits), "requests_per_second_one_by_one": single,
            "requests_per_second_batched": many, "batching_ratio": many / single}  # fmt: skip


def run(session, engine, requests: int, clients: int, extra: dict[str, Any] | None = None) -> float:
    """Seconds for `requests` drawings by `clients` clients over HTTP. Raises whatever one of them met."""
    import openai
    import uvicorn

    from dimoo_app.api import Service, create_app

    app = create_app(Service(session, engine))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=600)
    try:
        with ThreadPoolExecutor(clients) as pool:
            began = time.perf_counter()
            asked = [pool.submit(client.images.generate, prompt=PROMPT, extra_body={"seed": k, **(extra or {})})
                     for k in range(requests)]  # fmt: skip
            made = [one.result() for one in asked]
            seconds = time.perf_counter() - began
        assert len(made) == requests and all(one.data[0].b64_json for one in made)
        return seconds
    finally:
        client.close()
        server.should_exit = True
        thread.join()


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as place:
        place.settimeout(0.2)
        return place.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
