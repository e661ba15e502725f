"""/v1/models: what is served."""

from __future__ import annotations

import time

from fastapi import APIRouter, Depends

from dimoo_app.api.service import Service, service

router = APIRouter(prefix="/v1/models", tags=["models"])
STARTED = int(time.time())


def card(served: Service) -> dict:
    defaults = vars(served.session.pipeline.defaults)
    return {"id": served.name, "object": "model", "created": STARTED, "owned_by": "dimoo", "defaults": defaults}


@router.get("")
async def listed(served: Service = Depends(service)) -> dict:  # noqa: B008
    return {"object": "list", "data": [card(served)]}


@router.get("/{name:path}")
async def one(name: str, served: Service = Depends(service)) -> dict:  # noqa: B008
    served.check_model(name)
    return card(served)
