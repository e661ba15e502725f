"""Waiting for a job without holding the server, and without forgetting that the client may leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse

from dimoo.engine import Cancelled, Job, Result
from dimoo_app.api.errors import describe

POLL = 0.05
"""Seconds between looks at the client and at the canvas."""


async def finished(request: Request, job: Job) -> Result:
    """The result of a job; when the client leaves first the job is taken back and Cancelled is raised."""
    future = asyncio.wrap_future(job.future)
    try:
        while not (await asyncio.wait({future}, timeout=POLL))[0]:
            if await request.is_disconnected():
                raise Cancelled("the client left")
        return future.result()
    finally:
        job.cancel()                    # nothing, if it is over


async def progress(job: Job) -> AsyncIterator[int]:
    """The step, whenever it has grown, until the job is over."""
    seen = 0
    while not job.over:
        if job.step > seen:
            seen = job.step
            yield seen
        await asyncio.sleep(POLL)


def stream(events: AsyncIterator[str], job: Job) -> StreamingResponse:
    """Server-sent events. An error after the first byte is an event, for the status is gone by then."""

    async def guarded() -> AsyncIterator[str]:
        try:
            async for event in events:
                yield event
        except Exception as error:
            yield sse(describe(error)[1])
        finally:
            job.cancel()                # the client left: the generator is closed

    return StreamingResponse(guarded(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def sse(data: dict[str, Any] | str, event: str | None = None) -> str:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)}\n\n"
