"""The app: routes, errors, the guard, and an orderly end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from dimoo import __version__
from dimoo_app.api import chat, errors, health, images, models
from dimoo_app.api.guard import Guard
from dimoo_app.api.metrics import Metrics
from dimoo_app.api.service import Service


def create_app(service: Service) -> FastAPI:
    """The API of one model. When the app ends its engine finishes what it has."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(service.engine.close)

    app = FastAPI(title="DiMOO", version=__version__, lifespan=lifespan, docs_url="/docs", redoc_url=None)
    app.state.service, app.state.metrics = service, Metrics(service.engine)
    app.add_middleware(Guard, service=service, metrics=app.state.metrics)
    errors.install(app)
    for module in (models, images, chat, health):
        app.include_router(module.router)
    return app
