"""How long people wait: `python -m dimoo_app.bench` prints every number of the README's studio section.

    first picture   from the command `dimoo studio` to a picture through its page, imports and loading included
    a picture       of 16 steps, through a server that runs
    throughput      requests a second from several clients, batches of 1 against batches of up to --batch

Servers run in processes of their own, as they do for people; the clients share the machine with them. Both servers of
the throughput are up all the time and are asked in turn, so what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

PROMPTS = ("a red circle", "a blue square to the left of a green star", "three yellow hearts", "a star")
"""Of unlike lengths, as people write them."""
STEPS = 16
PATIENCE = 300
"""Seconds for a server to come up."""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="dimoo-tiny")
    parser.add_argument("--requests", type=int, default=100, help="of one measurement of the throughput")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--batch", type=int, default=16, help="the largest batch of the server that makes them")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("assets/benchmarks/studio.json"))
    given = parser.parse_args(words)
    row = {
        **first_picture(given.model, given.repeats),
        **throughput(given.model, given.requests, given.clients, given.batch, given.repeats),
        **machine(), "model": given.model, "requests": given.requests, "clients": given.clients,
        "batch": given.batch, "repeats": given.repeats,
    }  # fmt: skip
    for name, value in row.items():
        print(f"{name:32} {value:.2f}" if isinstance(value, float) else f"{name:32} {value}")
    from dimoo.bench.report import write_json

    write_json([row], given.out)


def first_picture(model: str, repeats: int) -> dict[str, Any]:
    """Seconds from the command to a finished picture, asked for as the page does."""
    from gradio_client import Client  # before the clock starts: a browser is not started by the command

    waits = []
    for _ in range(repeats):
        began = time.perf_counter()
        with server("studio", "--model", model, "--no-browser") as (address, _):
            listening = time.perf_counter() - began
            Client(address, verbose=False, httpx_kwargs={"timeout": 120}).predict(prompt=PROMPTS[0], api_name="/create")
            waits.append((time.perf_counter() - began, listening))
    return {"first_picture_seconds": median(whole for whole, _ in waits),
            "page_seconds": median(page for _, page in waits)}  # fmt: skip


def throughput(model: str, requests: int, clients: int, batch: int, repeats: int) -> dict[str, Any]:
    """Requests a second with batches of one and of many, in turn; and a picture of 16 steps."""
    flags = ("--model", model, "--no-studio", "--max-queue", str(requests))
    rates: dict[str, list[float]] = {"one": [], "many": []}
    with (server("serve", *flags, "--max-batch", "1") as (one, _),
          server("serve", *flags, "--max-batch", str(batch)) as (many, _)):  # fmt: skip
        for address in (one, many):
            drawn(address, clients, clients)                                    # warm
        waits = [drawn(one, 1, 1, {"steps": STEPS}) for _ in range(repeats)]
        for _ in range(repeats):
            for way, address in zip(rates, (one, many), strict=True):
                rates[way].append(requests / drawn(address, requests, clients))
    single, batched = (median(found) for found in rates.values())
    pairs = [b / a for a, b in zip(*rates.values(), strict=True)]
    return {
        f"picture_{STEPS}_steps_seconds": median(waits), "requests_per_second_one_by_one": single,
        "requests_per_second_batched": batched, "batching_ratio": median(pairs), "batching_ratio_min": min(pairs),
        "batching_ratio_max": max(pairs),
    }  # fmt: skip


def drawn(address: str, requests: int, clients: int, extra: dict[str, Any] | None = None) -> float:
    """Seconds for `requests` drawings by `clients` clients over HTTP. Raises whatever one of them met."""
    import openai

    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=600)

    def ask(seed: int) -> bool:
        made = client.images.generate(prompt=PROMPTS[seed % len(PROMPTS)], extra_body={"seed": seed, **(extra or {})})
        return bool(made.data[0].b64_json)

    with client, ThreadPoolExecutor(clients) as pool:
        began = time.perf_counter()
        got = list(pool.map(ask, range(requests)))
        seconds = time.perf_counter() - began
    if sum(got) != requests:
        raise RuntimeError(f"{requests - sum(got)} of {requests} answers have no picture")
    return seconds


@contextmanager
def server(command: str, *flags: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """`dimoo COMMAND` in a process of its own, as soon as it listens: its address and the process, stopped behind."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "dimoo", command, *flags, "--port", str(port), "--history", folder]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + PATIENCE
            while not listens(port):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{' '.join(words)} did not come up, exit code {process.poll()}")
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    return {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
            "python": platform.python_version(), "torch": version("torch")}  # fmt: skip


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
