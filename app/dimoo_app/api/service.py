"""What every route works with: the model behind its engine, what a request may ask for, and who may ask."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import Request

from dimoo.cli.session import Session
from dimoo.engine import Engine


@dataclass(frozen=True)
class ApiLimits:
    """The largest request: pictures of one call, pixels of one picture, steps, letters of all texts, bytes of a body.

    `pixels` None is four times what the model draws by itself.
    """

    pictures: int = 10
    pixels: int | None = None
    steps: int = 1000
    tokens: int = 2048
    letters: int = 32_000
    body: int = 32 * 1024 * 1024


@dataclass(frozen=True)
class Service:
    """One served model."""

    session: Session
    engine: Engine
    limits: ApiLimits = field(default_factory=ApiLimits)
    keys: Sequence[str] = ()

    @property
    def name(self) -> str:
        """What the model is called: its hub id or the last part of its folder."""
        return self.session.model if not Path(self.session.model).is_dir() else Path(self.session.model).name

    @property
    def pixels(self) -> int:
        defaults = self.session.pipeline.defaults
        return self.limits.pixels or 4 * max(defaults.height * defaults.width, defaults.image_side**2)

    def knows(self, key: str) -> bool:
        """Whether `key` may ask; compared in constant time, all keys each time."""
        return not self.keys or any([hmac.compare_digest(key.encode(), one.encode()) for one in self.keys])

    def check_model(self, name: str | None) -> None:
        if name not in (None, "", self.name, self.session.model):
            raise UnknownModel(f"no model {name!r}; allowed: {self.name}")


class UnknownModel(ValueError):
    """The request names a model that is not served here."""


def service(request: Request) -> Service:
    """The dependency of every route."""
    return request.app.state.service
