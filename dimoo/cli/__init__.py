"""The `dimoo` command. A new subcommand is one line of COMMANDS.

Nothing here imports torch: a command's module holds its flags, and imports what it needs when it runs.
"""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from dimoo import __version__
from dimoo.cli.flags import grouped
from dimoo.cli.group import Group

COMMANDS: dict[str, tuple[str, str]] = {
    "generate": ("Pictures", "dimoo.cli.generate:generate"),
    "edit": ("Pictures", "dimoo.cli.edit:edit"),
    "inpaint": ("Pictures", "dimoo.cli.inpaint:inpaint"),
    "ask": ("Answers", "dimoo.cli.ask:ask"),
    "batch": ("For many", "dimoo.cli.batch:batch"),
    "studio": ("For many", "dimoo.cli.serving:studio"),
    "serve": ("For many", "dimoo.cli.serving:serve"),
    "inspect": ("Looking inside", "dimoo.cli.inspect:inspect"),
    "doctor": ("Looking inside", "dimoo.cli.doctor:doctor"),
    "bench": ("Measuring", "dimoo.cli.bench:bench"),
    "train": ("Training", "dimoo.cli.train:train"),
    "eval": ("Training", "dimoo.cli.eval:evaluate"),
}
"""Name -> the heading it stands under in the help, and `module:function`, or a typer app of subcommands."""


def build() -> typer.Typer:
    """The command with all its subcommands."""
    app = typer.Typer(cls=Group, invoke_without_command=True, pretty_exceptions_enable=False)
    app.callback()(root)
    for name, (heading, target) in COMMANDS.items():
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=heading)
        else:
            app.command(name, rich_help_panel=heading)(grouped(command))
    return app


def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    """Draw, edit and describe pictures with one masked-token model."""
    if version:
        typer.echo(f"dimoo {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


app = build()


def main() -> None:
    app()
