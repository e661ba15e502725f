"""`dimoo batch`: a file of requests into a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dimoo.cli.flags import Machine

Count = int


def batch(
    machine: Machine,
    source: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="One request a line; see the README.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the results; an unfinished batch goes on.")],
    seed: Annotated[int, typer.Option(help="Of lines without one; line k has its stream k.")] = 0,
    workers: Annotated[Count, typer.Option(help="Processes on this machine, or actors of a cluster.")] = 1,
    together: Annotated[Count, typer.Option("--batch", help="Requests that are made together.")] = 16,
    engine: Annotated[
        str, typer.Option(metavar="local|ray", help="Where: this machine, or the Ray cluster at RAY_ADDRESS.")
    ] = "local",
    geneval: Annotated[
        Count, typer.Option(metavar="N", help="FILE is GenEval metadata: N pictures a prompt, in its scorer's layout.")
    ] = 0,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that are wrong.")] = False,
) -> None:
    """Answer every line of a file once, and go on where it was stopped.

    A line is {"prompt": "a red circle"} with any of id, task, image, mask, size, seed, steps, ... The folder has a
    manifest in the order of the file; the exit code is 1 when lines failed, and failures.jsonl says why.
    """
    from dimoo.batch import ENGINES, BadLines, Plan, read_geneval, read_items, run
    from dimoo.cli import console
    from dimoo.cli.group import FAILURE
    from dimoo.resolve import resolve

    resolve(engine, ENGINES, "engine")
    plan, bad = Plan(machine, out, workers, together), 0
    try:
        items = read_geneval(source, geneval, seed) if geneval else read_items(source, seed)
    except BadLines as error:
        if not (skip_bad and error.good):
            raise
        console.note(f"left out: {error}")
        items, bad = error.good, len(error.problems)
    with console.countdown(f"{len(items)} requests", len(items)) as tell:
        records = run(items, plan, engine, tell, source if geneval else None)
    failed = sum(record["status"] == "failed" for record in records.values())
    console.out.print(f"{len(records) - failed} results in {out}, manifest in {out / 'manifest.jsonl'}", style="green")
    if failed:
        console.fail(f"{failed} failed, see {out / 'failures.jsonl'}")
    if failed or bad:
        raise typer.Exit(FAILURE)
