"""How a command ends: an error of the user's is one red line and an exit code, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from dimoo.cli.console import fail, note

UsageError = typer.BadParameter.__base__
"""The class of unknown flags and missing arguments: click's, or that of the click inside newer typers."""

MISTAKE, FAILURE, STOPPED = 2, 1, 130
DEBUG = "--debug"


class Group(TyperGroup):
    """The root command. `--debug` may stand anywhere; with it errors come through as they are."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, standalone_mode: bool = True, **extra: Any):
        given = list(sys.argv[1:] if args is None else args)
        flags = given[: given.index("--")] if "--" in given else given
        kept = [word for word in flags if word != DEBUG] + given[len(flags) :]
        try:
            code = super().main(kept, *rest, standalone_mode=False, **extra)
        except (Exception, KeyboardInterrupt) as error:
            if len(kept) < len(given) or not standalone_mode:
                raise
            code = explain(error)
        if code == STOPPED:
            note("stopped")
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def explain(error: BaseException) -> int:
    """Say what went wrong and return the exit code; what is not the user's doing is raised again."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return STOPPED
    for kinds, words, code in OUTCOMES:
        if isinstance(error, kinds):
            fail(words(error))
            return code
    if type(error).__name__ == "OutOfMemoryError":  # torch's, which need not be imported
        fail("out of memory on the device: try a smaller --size, --dtype bfloat16 or --device cpu")
        return FAILURE
    raise error


def _os_error(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


OUTCOMES = (
    (UsageError, lambda error: error.format_message(), MISTAKE),
    (ValueError, str, MISTAKE),
    (OSError, _os_error, FAILURE),
)
"""(kinds of error, how to say it, exit code); the first that fits counts."""
