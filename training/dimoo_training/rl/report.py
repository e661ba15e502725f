"""The published form of the experiments: a table, its numbers as JSON, and curves."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path

import torch

CURVES = {"reward": "own reward", "oracle": "oracle (never used)", "solved": "whole puzzles"}
SMOOTH = 0.9
HEADS = ("run", "before", "after", "difference, 95% interval", "questions", "edits", "expected")


def write_table(out: Path, model: str, rows: list[dict], search: dict, judge: dict) -> None:
    """results.json and table.md; rows without numbers are not measured yet."""
    machine = {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads(),
               "torch": torch.__version__, "start": str(model)}  # fmt: skip
    results = {"machine": machine, "runs": rows, "search": search, "judge": judge}
    write(out / "results.json", json.dumps(results, indent=1) + "\n")
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for row in rows:
        parts = row.get("difference", {})
        means = [f"{row[when]['mean']:.1%}" if parts else "not measured" for when in ("before", "after")]
        changes = [points(parts.get(part)) for part in ("main", "questions", "edits")]
        lines.append(f"| {' | '.join([row['run'], *means, *changes, row['expected']])} |")
    if search:
        lines += ["", "| model | search | right | forwards a drawing |", "|---" * 4 + "|"]
    for name, methods in search.items():
        for method, m in methods.items():
            lines.append(f"| {name} | {method} | {m['scores']['mean']:.1%} | {m['forwards']:.0f} |")
    if judge:
        told = ", ".join(f"{name} {share:.1%}" for name, share in judge.items())
        lines += ["", f"Right choices of the judge about held-out pictures, by way to ask: {told}."]
    write(out / "table.md", "\n".join(lines) + "\n")


def points(difference: dict[str, float] | None) -> str:
    """After minus before, in points, with its interval."""
    if difference is None:
        return "-"
    return "{mean:+.1f} ({low:+.1f} to {high:+.1f})".format(**difference)


def draw_curves(out: Path, paths: Mapping[str, Path]) -> None:
    """curves.png: own reward and oracle over the rounds of every run that has begun, smoothed."""
    logs = {name: read_log(path) for name, path in paths.items() if path.exists()}
    if not any(logs.values()):
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    known = {name for entries in logs.values() for entry in entries for name in entry}
    told = {name: title for name, title in CURVES.items() if name in known}
    figure, axes = pyplot.subplots(1, len(told), figsize=(3 + 4 * len(told), 4), layout="constrained", squeeze=False)
    for axis, (name, title) in zip(axes[0], told.items(), strict=True):
        for label, entries in logs.items():
            shown = [(e["step"], e[name]) for e in entries if name in e]
            if shown:
                axis.plot([step for step, _ in shown], smoothed([value for _, value in shown]), label=label)
        axis.set(title=title, xlabel="round", ylabel="mean over samples")
        axis.grid(alpha=0.3)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8)
    aside = out / "curves.part"
    figure.savefig(aside, format="png", dpi=120)
    aside.replace(out / "curves.png")
    pyplot.close(figure)


def read_log(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def smoothed(values: list[float]) -> list[float]:
    """Exponential mean, corrected at the start."""
    mean, weight, found = 0.0, 0.0, []
    for value in values:
        mean, weight = SMOOTH * mean + (1 - SMOOTH) * value, SMOOTH * weight + 1 - SMOOTH
        found.append(mean / weight)
    return found


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(text)
    aside.replace(path)
