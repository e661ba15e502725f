"""A server of the tests: the real app on a free port of this machine, and clients of it."""

from __future__ import annotations

import base64
import io
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field

import openai
import uvicorn
from PIL import Image

from dimoo.cli.session import Session
from dimoo.engine import Engine, Limits
from dimoo_app.api import ApiLimits, Service, create_app


def png(image) -> bytes:
    """A picture as the bytes of a file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def opened(entry) -> Image.Image:
    """The picture in an answer of the API."""
    return Image.open(io.BytesIO(base64.b64decode(entry.b64_json)))


@dataclass
class Place:
    """A running server."""

    service: Service
    server: uvicorn.Server
    thread: threading.Thread
    clients: list[openai.OpenAI] = field(default_factory=list)

    @classmethod
    def start(cls, pipeline, model="tiny", keys=(), queue=64, batch=16, dress=None, **limits) -> Place:
        """`dress` adds to the app before it runs. The engine's queue and batch; `limits` are of the API."""
        session = Session(pipeline, model, "0" * 16, "cpu", "float32")
        service = Service(session, Engine(pipeline, Limits(queue, batch)), ApiLimits(**limits), keys)
        app = create_app(service)
        if dress:
            app = dress(app)
        config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=3)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        place = cls(service, server, thread)
        place.until(lambda: server.started)
        return place

    @property
    def engine(self) -> Engine:
        return self.service.engine

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"

    @property
    def client(self) -> openai.OpenAI:
        return self.client_with("any")

    def client_with(self, key: str) -> openai.OpenAI:
        self.clients.append(openai.OpenAI(base_url=f"{self.address}/v1", api_key=key, max_retries=0, timeout=60))
        return self.clients[-1]

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.address + path, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def until(self, condition, seconds=120.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.005)

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.server.should_exit = True
        self.thread.join(20)
