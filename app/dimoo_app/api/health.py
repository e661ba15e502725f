"""/healthz for those who restart us, /metrics for those who watch us."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from dimoo_app.api.service import Service, service

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz(served: Service = Depends(service)) -> JSONResponse:  # noqa: B008
    """200 while work is taken; 503 when shutting down, or when the worker is gone."""
    engine = served.engine
    state = {"status": "ok" if engine.alive else "closed", "waiting": engine.waiting, "running": engine.running}
    return JSONResponse({**state, "model": served.name}, 200 if engine.alive else 503)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)
