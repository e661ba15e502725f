"""`dimoo bench`: measuring commands."""

from __future__ import annotations

import typer

from dimoo.cli.bench_decode import decode
from dimoo.cli.flags import grouped

bench = typer.Typer(invoke_without_command=True)


@bench.callback()
def show(context: typer.Context) -> None:
    """Measure speed next to quality."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


bench.command("decode")(grouped(decode))
