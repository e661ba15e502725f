"""The OpenAI-compatible HTTP API."""

from dimoo_app.api.app import create_app
from dimoo_app.api.service import ApiLimits, Service

__all__ = ["ApiLimits", "Service", "create_app"]
