"""Running the app, and ending it: what was taken is finished or refused with a word, then the door closes."""

from __future__ import annotations

import threading
import time

import uvicorn
from fastapi import FastAPI

from dimoo_app.api.service import Service

LAST_WORDS = 5.0
"""Seconds for answers that are ready to reach slow clients."""


class Server(uvicorn.Server):
    """uvicorn, whose end begins with the engine: it takes no more work and has `grace` seconds to finish.

    Open pages of the studio hold connections for ever; they are cut once no API request is left.
    """

    def __init__(self, app: FastAPI, service: Service, host: str, port: int, grace: float = 30.0):
        waiting = int(grace + 2 * LAST_WORDS)
        super().__init__(uvicorn.Config(app, host=host, port=port, log_level="warning",
                                        timeout_graceful_shutdown=waiting))  # fmt: skip
        self.service, self.metrics, self.grace = service, app.state.metrics, grace

    def handle_exit(self, sig, frame) -> None:
        if not self.should_exit:
            self.service.engine.drain(self.grace)
            threading.Thread(target=self._close_when_done, daemon=True).start()
        super().handle_exit(sig, frame)

    def _close_when_done(self) -> None:
        self.service.engine.close()
        end = time.monotonic() + LAST_WORDS
        while self.metrics.active and time.monotonic() < end:
            time.sleep(0.05)
        self.force_exit = True
