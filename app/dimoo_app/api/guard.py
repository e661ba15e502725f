"""Before a route is reached: who asks, how much arrives, and how long it took, as plain ASGI (no response is held)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from dimoo_app.api.errors import refusal
from dimoo_app.api.metrics import Metrics
from dimoo_app.api.service import Service

PROTECTED = ("/v1/", "/metrics")
"""Paths that need a key when there are keys. The studio has its own login."""


class Guard:
    """Keys, the size of bodies, and counting."""

    def __init__(self, app, service: Service, metrics: Metrics):
        self.app, self.service, self.metrics = app, service, metrics

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PROTECTED):
            return await self.app(scope, receive, send)
        began, status = time.perf_counter(), 499         # what the client's leaving is counted as
        self.metrics.active += 1

        async def sent(message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            headers = Headers(scope=scope)
            if refused := self.check(headers):
                return await refusal(refused)(scope, receive, sent)
            await self.app(scope, self.bounded(receive), sent)
        finally:
            self.metrics.active -= 1
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(route, scope["method"], status).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - began)

    def check(self, headers: Headers) -> HTTPException | None:
        """Why a request is refused before its body is read."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if self.service.keys and (scheme.lower() != "bearer" or not self.service.knows(key.strip())):
            return HTTPException(401, "a valid key is needed: Authorization: Bearer KEY")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.service.limits.body:
            return self.too_large()
        return None

    def bounded(self, receive: Callable[[], Awaitable[dict]]) -> Callable[[], Awaitable[dict]]:
        """A body without a length is counted as it comes."""
        got = 0

        async def counted() -> dict:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > self.service.limits.body:
                raise self.too_large()
            return message

        return counted

    def too_large(self) -> HTTPException:
        return HTTPException(413, f"the request is too large; allowed: {self.service.limits.body} bytes")
