"""The published form of the experiments: a table, its numbers as JSON, and curves."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import torch

CURVES = {"reward": "own reward", "oracle": "oracle (never used)"}
SMOOTH = 0.9


def write_table(out: Path, model: str, rows: list[dict], search: dict) -> None:
    """results.json and table.md."""
    machine = {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads(),
               "torch": torch.__version__, "start": str(model)}  # fmt: skip
    write(out / "results.json", json.dumps({"machine": machine, "runs": rows, "search": search}, indent=1) + "\n")
    heads = ("run", "seed", "before", "after", "difference, 95% interval", "questions", "edits", "expected")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        d = row["difference"]
        lines.append(
            f"| {row['run']} | {row['seed']} | {row['before']['mean']:.1%} | {row['after']['mean']:.1%} | "
            f"{d['mean']:+.1f} ({d['low']:+.1f} to {d['high']:+.1f}) | {change(row, 'qa_accuracy')} | "
            f"{change(row, 'edit_preserved')} | {row['expected']} |"
        )
    lines += ["", "| model | search | right | forwards a drawing |", "|---" * 4 + "|"]
    for name, methods in search.items():
        for method, m in methods.items():
            lines.append(f"| {name} | {method} | {m['scores']['mean']:.1%} | {m['forwards']:.0f} |")
    write(out / "table.md", "\n".join(lines) + "\n")


def change(row: dict, name: str) -> str:
    """Points, after minus before."""
    if name not in row["others_after"]:
        return "-"
    return f"{100 * (row['others_after'][name] - row['others_before'][name]):+.1f}"


def draw_curves(out: Path) -> None:
    """curves.png: own reward and oracle over the rounds of every run, smoothed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    logs = {path.parent.name: read_log(path) for path in sorted((out / "runs").glob("*/log.jsonl"))}
    figure, axes = pyplot.subplots(1, len(CURVES), figsize=(11, 4), sharex=True, layout="constrained")
    for axis, (name, title) in zip(axes, CURVES.items(), strict=True):
        for label, entries in logs.items():
            shown = [(e["step"], e[name]) for e in entries if name in e]
            if shown:
                axis.plot([step for step, _ in shown], smoothed([value for _, value in shown]), label=label)
        axis.set(title=title, xlabel="round", ylabel="mean over samples")
        axis.grid(alpha=0.3)
    handles, labels = axes[0].get_legend_handles_labels()
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
