"""What the terminal shows. Results go to the standard output, everything else to the standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

out = Console(highlight=False)
err = Console(highlight=False, stderr=True)


def one_line(words: str) -> str:
    return " ".join(words.split())


def fail(words: str) -> None:
    err.print(Text.assemble(("error: ", "bold red"), (one_line(words), "red")), soft_wrap=True)


def note(words: str) -> None:
    err.print(Text(one_line(words), "yellow"), soft_wrap=True)


def say(words: str) -> None:
    """A sentence that is a result."""
    out.print(Text(words), soft_wrap=True)


def say_picture(path: Path, size: tuple[int, int], seed: int, index: int, seconds: float) -> None:
    """One line for each picture made: path, height x width, seed, seconds. `size` is pillow's (width, height)."""
    start = f"seed {seed}" + (f" index {index}" if index else "")
    rest = f"  {size[1]}x{size[0]}  {start}  {seconds:.2f} s"
    out.print(Text.assemble((str(path), "bold green"), (rest, "dim")), soft_wrap=True)


@contextmanager
def progress(words: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar of `total` steps that goes away when it is done; call what it gives after each step."""
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    plain = {"redirect_stdout": False, "redirect_stderr": False, "disable": not err.is_terminal}
    with Progress(*columns, console=err, transient=True, **plain) as bar:
        task = bar.add_task(one_line(words)[:50], total=total)
        yield lambda: bar.advance(task)


@contextmanager
def growing() -> Iterator[Callable[[str], None]]:
    """Show a text that changes: in place on a terminal, else one line for each state. It goes away when it is done."""
    if not err.is_terminal:
        yield lambda words: err.print(Text(one_line(words), "dim"), soft_wrap=True)
        return
    with Live(console=err, transient=True, auto_refresh=False) as live:
        yield lambda words: live.update(Text(words, "dim"), refresh=True)


@contextmanager
def countdown(words: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left; call what it gives with how many are done. Without a terminal: a line each minute."""
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    said = time.monotonic()
    with Progress(*columns, console=err, redirect_stdout=False, redirect_stderr=False,
                  disable=not err.is_terminal) as bar:  # fmt: skip
        task = bar.add_task(one_line(words)[:50], total=total)

        def tell(done: int) -> None:
            nonlocal said
            bar.update(task, completed=done)
            if not err.is_terminal and (time.monotonic() > said + 60 or done == total):
                said = time.monotonic()
                note(f"{done} of {total}")

        yield tell


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a small table; cells are plain text, or rich text with a style."""
    made = Table(title=Text(title, "bold"), title_justify="left", show_header=any(headings), box=None)
    for number, heading in enumerate(headings):
        made.add_column(heading, header_style="dim", style="cyan" if number == 0 else "", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    out.print(made)


def facts(title: str, values: Mapping[str, Any]) -> None:
    """Print names and values."""
    table(title, ("", ""), list(values.items()))
