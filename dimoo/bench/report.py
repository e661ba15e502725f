"""Rows of a benchmark as a table, as JSON, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from dimoo.bench.workload import BASELINE

HEADINGS = ("preset", "seconds", "min to max", "faster", "forwards", "TFLOP", "of peak", "MB", "score")


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """One row of the table; ~ marks seconds that are extrapolated from fewer steps."""
    about = "~" if row["measured_steps"] < row["steps"] else ""
    ratio = row["ratio_to_plain"]
    return (
        row["preset"], f"{about}{row['seconds_median']:.2f}", f"{row['seconds_min']:.2f} to {row['seconds_max']:.2f}",
        "" if ratio is None else f"{ratio:.2f}x", str(row["forwards"]), f"{row['flops'] / 1e12:.2f}",
        f"{row['share_of_peak']:.0%}", f"{row['peak_memory_mb']:.0f}", said_score(row),
    )  # fmt: skip


def said_score(row: dict[str, Any]) -> str:
    if row["score"] is None:
        return ""
    return f"{row['score']:.1%} ({row['score_change_low']:+.1%} to {row['score_change_high']:+.1%})"


def title(row: dict[str, Any]) -> str:
    """What all rows of a table share."""
    return (
        f"{row['model']}, {row['task']}, grid {row['grid']}, {row['steps']} steps, batch {row['batch']}, "
        f"{row['dtype']}, {row['device']}, {row['repeats']} repeats"
    )


def print_table(rows: Sequence[dict[str, Any]], log=print) -> None:
    """Plain text, for machines without a console library."""
    lines = [HEADINGS, *map(cells, rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(HEADINGS))]
    log(title(rows[0]))
    for line in lines:
        log("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def write_json(made: Sequence[Mapping[str, Any]] | Mapping[str, Any], path: Path) -> None:
    """Numbers; written aside, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".part")
    aside.write_text(json.dumps(dict(made) if isinstance(made, Mapping) else list(made), indent=1) + "\n", "utf-8")
    aside.replace(path)


def plot_quality(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Score against speed-up, one point a preset. Needs matplotlib."""
    scored = [row for row in rows if row["score"] is not None and row["preset"] != BASELINE]
    by_preset = {row["preset"]: row["seconds_median"] for row in rows}
    base = by_preset.get("exact") or by_preset[BASELINE]
    with drawing(path, (6, 4)) as figure:
        (axes,) = panels(figure)
        for row in scored:
            x, y = base / row["seconds_median"], 100 * row["score"]
            low, high = 100 * (row["score"] - row["score_low"]), 100 * (row["score_high"] - row["score"])
            axes.errorbar(x, y, [[low], [high]], fmt="o", color="#1f5fa8", capsize=3)
            axes.annotate(row["preset"], (x, y), xytext=(6, 6), textcoords="offset points")
        axes.set_xlabel("times as fast as without a cache")
        axes.set_ylabel("right by the oracle, % (95% interval)")
        axes.set_title(f"{scored[0]['model']}, {scored[0]['task']}, {scored[0]['steps']} steps")


def plot_cost(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Seconds a step against the grid's cells (batch 1) and against the batch, with what explains them: in proportion
    to cells or pictures, and in proportion to FLOPs, which attention adds to. Needs matplotlib."""
    small = min(map(cells_of, rows))
    grids = sorted((row for row in rows if row["batch"] == 1), key=cells_of)
    batches = sorted((row for row in rows if cells_of(row) == small), key=itemgetter("batch"))
    with drawing(path, (9, 4)) as figure:
        left, right = panels(figure, 2)
        right.sharey(left)
        sides = (left, grids, cells_of, "cells of the grid"), (right, batches, itemgetter("batch"), "pictures at once")
        for axes, shown, of, words in sides:
            x, y = [of(row) for row in shown], [row["seconds_median"] / row["steps"] for row in shown]
            by_flops = [y[0] * row["flops"] / shown[0]["flops"] for row in shown]
            axes.loglog(x, y, "o-", color="#1f5fa8", label="measured")
            axes.loglog(x, by_flops, "--", color="#b8652b", label="in proportion to FLOPs")
            axes.loglog(x, [y[0] * one / x[0] for one in x], ":", color="grey", label=f"in proportion to {words}")
            axes.set_xlabel(words)
            axes.set_xticks(x, [str(one) for one in x])
            axes.minorticks_off()
            axes.legend(frameon=False, fontsize="small")
        left.set_ylabel("seconds a step")


def cells_of(row: dict[str, Any]) -> int:
    height, width = row["grid"].split("x")
    return int(height) * int(width)


@contextmanager
def drawing(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """A matplotlib figure of `size` inches that is saved at the end, aside first."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ValueError("plots need matplotlib: pip install 'dimoo[train]'") from error
    figure = Figure(size, layout="constrained", dpi=150)
    yield figure
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name("part-" + path.name)
    figure.savefig(aside)
    aside.replace(path)


def panels(figure, columns: int = 1) -> list[Any]:
    """Axes side by side, open at the top and on the right."""
    made = list(figure.subplots(1, columns, squeeze=False)[0])
    for axes in made:
        axes.spines[["top", "right"]].set_visible(False)
    return made
