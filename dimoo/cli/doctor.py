"""`dimoo doctor`: what this machine can run."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    model: Annotated[str | None, typer.Option(help="Also estimate this checkpoint folder or hub id.")] = None,
) -> None:
    """Show what this machine can run: devices, extras, and which model fits. Loads no model."""
    from dimoo.cli import health

    health.show(model)
