"""The picture of `dimoo bench decode`: accuracy against forwards, and below it what the comparisons came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from dimoo.bench.compare import Rows, by, family
from dimoo.bench.report import drawing

COLORS = {
    "by schedule, in blocks": "#64748b", "by schedule, all at once": "#d97706", "by certainty, in blocks": "#2563eb",
    "by certainty, all at once": "#0d9488", "takes tokens back": "#be185d",
}  # fmt: skip
MARKERS = dict(zip(COLORS, "os^D*", strict=True))
INK, FAINT = "#1e293b", "#cbd5e1"
SHADES = ("#0d9488", "#d97706", "#be185d", "#2563eb")
"""Of tasks."""
Entries = Sequence[Mapping[str, Any]]


def plot_decoding(made: Mapping[str, Any], path: Path) -> None:
    """One panel a task, and one for the comparisons where there are any. Needs matplotlib."""
    entries = made["comparisons"]
    told = {task: [row for row in rows if row["accuracy"] is not None] for task, rows in made["tasks"].items()}
    heights = [4.4] + ([1.2 + 0.55 * len(grouped(entries))] if entries else [])
    with drawing(path, (max(8.5, 5.2 * len(told)), sum(heights))) as figure:
        upper, *lower = figure.subfigures(len(heights), squeeze=False, height_ratios=heights)[:, 0]
        panels = upper.subplots(1, len(told), sharey=True, squeeze=False)[0]
        for panel, (task, rows) in zip(panels, told.items(), strict=True):
            curves(panel, rows)
            panel.set_title(task, loc="left", color=INK, fontweight="bold")
            panel.set_xlabel("forwards for an answer")
        panels[0].set_ylabel("answered right, %")
        legend(upper, {line.get_color() for panel in panels for line in panel.get_lines()})
        if lower:
            forest(lower[0].subplots(), entries)


def curves(panel, rows: Rows) -> None:
    """Every recipe faint, and the front of those that nothing beats at as few forwards, lettered, with intervals."""
    for name in dict.fromkeys(row["recipe"] for row in rows):
        own = sorted((row for row in rows if row["recipe"] == name), key=by("forwards"))
        kind, x, y = family(name), [row["forwards"] for row in own], [100 * row["accuracy"] for row in own]
        panel.plot(x, y, color=COLORS[kind], linewidth=0.6, alpha=0.25)
        panel.plot(x, y, MARKERS[kind], color=COLORS[kind], markersize=4.5, alpha=0.45, markeredgewidth=0)
    best = front(rows)
    x, y = [row["forwards"] for row in best], [100 * row["accuracy"] for row in best]
    spread = [[100 * abs(row["interval"][side] - row["accuracy"]) for row in best] for side in (0, 1)]
    panel.errorbar(x, y, spread, fmt="none", ecolor=FAINT, elinewidth=1, capsize=2, zorder=1)
    panel.step(x, y, where="post", color=INK, linewidth=1, zorder=2)
    for letter, row, left, high in zip(ascii_lowercase, best, x, y, strict=False):
        kind = family(row["recipe"])
        panel.plot(left, high, MARKERS[kind], color=COLORS[kind], markersize=7, markeredgecolor="white", zorder=3)
        panel.annotate(letter, (left, high), xytext=(-6, 5), textcoords="offset points", fontsize=8, color=INK)
    named = zip(ascii_lowercase, best, strict=False)
    key = "\n".join(f"{letter}  {row['recipe']} {row['budget']:g}" for letter, row in named)
    panel.text(0.985, 0.03, key, transform=panel.transAxes, ha="right", va="bottom", multialignment="left",
               fontsize=7, color=INK)  # fmt: skip
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_ylim(-4, 106)
    panel.grid(axis="y", color=FAINT, linewidth=0.5, alpha=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def front(rows: Rows) -> list[Mapping[str, Any]]:
    """Rows that are more often right than all with as few forwards, fewest forwards first."""
    best: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["forwards"], -row["accuracy"])):
        if not best or row["accuracy"] > best[-1]["accuracy"]:
            best.append(row)
    return best


def legend(figure, shown: set[str]) -> None:
    from matplotlib.lines import Line2D

    kinds = [kind for kind, color in COLORS.items() if color in shown]
    handles = [Line2D([], [], color=COLORS[kind], marker=MARKERS[kind], linewidth=0.8) for kind in kinds]
    figure.legend(handles, kinds, loc="outside upper center", ncols=len(kinds), frameon=False, fontsize=8)


def grouped(entries: Entries) -> dict[str, list[Mapping[str, Any]]]:
    """Comparison -> its entries, one a task."""
    return {name: [entry for entry in entries if entry["comparison"] == name]
            for name in dict.fromkeys(entry["comparison"] for entry in entries)}  # fmt: skip


def forest(panel, entries: Entries) -> None:
    """Differences in points with their intervals; each end of a line names the way of decoding that is better there."""
    groups, tasks = grouped(entries), list(dict.fromkeys(entry["task"] for entry in entries))
    shades = dict(zip(tasks, (*SHADES[: len(tasks) - 1], INK), strict=False)) if len(tasks) > 1 else {tasks[0]: INK}
    for place, group in enumerate(groups.values()):
        panel.axhspan(place - 0.5, place + 0.5, color="#f1f5f9" if place % 2 else "white", zorder=0)
        for entry in group:
            middle, (low, high) = 100 * entry["difference"], (100 * edge for edge in entry["interval"])
            shade, y = shades[entry["task"]], place + 0.24 * (tasks.index(entry["task"]) - (len(tasks) - 1) / 2)
            panel.plot([low, high], [y, y], color=shade, linewidth=2, alpha=0.45, solid_capstyle="round")
            panel.plot(middle, y, "o", color=shade, markersize=5.5, markeredgecolor="white",
                       label="" if place else entry["task"])  # fmt: skip
    panel.axvline(0, color=INK, linewidth=0.8)
    reach = 1.08 * max(5.0, *(abs(100 * edge) for entry in entries for edge in entry["interval"]))
    panel.set(xlim=(-reach, reach), xlabel="points more often right")
    panel.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    for axis, side in ((panel, "second"), (panel.twinx(), "first")):
        ways = [" ".join((group[0][side][0], f"{group[0][side][1]:g}")) for group in groups.values()]
        axis.set_yticks(range(len(groups)), ways, fontsize=8, color=INK)
        axis.set_ylim(len(groups) - 0.5, -0.5)
        axis.tick_params(axis="y", length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
    panel.set_title("The same problems, answered in two ways (95% intervals)", loc="left", color=INK, fontweight="bold")
    panel.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(tasks), frameon=False, fontsize=8)
