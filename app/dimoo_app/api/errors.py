"""Every error leaves as OpenAI's JSON: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from dimoo.engine import Cancelled, Closed, QueueFull
from dimoo_app.api.service import UnknownModel

log = logging.getLogger("dimoo.api")

ERRORS: tuple[tuple[type[BaseException], int, str, str], ...] = (
    (UnknownModel, 404, "invalid_request_error", "model_not_found"),
    (QueueFull, 429, "rate_limit_error", "queue_full"),
    (Closed, 503, "server_error", "shutting_down"),
    (Cancelled, 499, "invalid_request_error", "cancelled"),
    (ValueError, 400, "invalid_request_error", "invalid_value"),
)
"""Kind of error -> status, type, code; the first that fits counts, anything else is ours: 500."""

RETRY = {429: "1", 503: "5"}
"""Status -> seconds after which to ask again."""


def error_body(message: str, kind: str, code: str | None, param: str | None = None) -> dict:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def describe(error: BaseException) -> tuple[int, dict]:
    """Status and body for whatever went wrong. Only our own mistakes are logged, and not told to strangers."""
    if isinstance(error, RequestValidationError | ValidationError):
        first = error.errors()[0]
        param = ".".join(str(part) for part in first["loc"] if part != "body") or None
        message = f"{param}: {first['msg']}" if param else first["msg"]
        return 400, error_body(message, "invalid_request_error", first["type"], param)
    if isinstance(error, HTTPException):
        kind = "server_error" if error.status_code >= 500 else "invalid_request_error"
        code = HTTPStatus(error.status_code).name.lower()
        return error.status_code, error_body(str(error.detail), kind, code)
    for kinds, status, kind, code in ERRORS:
        if isinstance(error, kinds):
            return status, error_body(str(error), kind, code)
    log.error("a request failed", exc_info=error)
    if type(error).__name__ == "OutOfMemoryError":
        return 503, error_body("out of memory: ask for a smaller picture or fewer", "server_error", "out_of_memory")
    return 500, error_body("internal error; the server's log says more", "server_error", "internal_error")


def refusal(error: BaseException) -> JSONResponse:
    status, body = describe(error)
    headers = {"Retry-After": RETRY[status]} if status in RETRY else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body, status, headers)


async def answer(request: Request, error: Exception) -> JSONResponse:
    return refusal(error)


def install(app: FastAPI) -> None:
    """Make `app` answer errors this way."""
    for kind in (Exception, RequestValidationError, HTTPException, *(row[0] for row in ERRORS)):
        app.add_exception_handler(kind, answer)
