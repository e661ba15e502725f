"""Every CPU number of the documentation in one run: `python -m dimoo.bench.suite --out assets/benchmarks`.

About 25 minutes on two quiet cores. Long schedules are measured over fewer steps with the same shares of full and
partial passes, and scaled by the FLOPs of all steps; the rows state `measured_steps`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from dimoo.bench.measure import matmul_peak, measure, rows
from dimoo.bench.report import plot_cost, plot_quality, print_table, write_json
from dimoo.bench.workload import Load, Workload, random_model

ALL = ("plain", "exact", "published", "balanced", "fast")
CPU = torch.device("cpu")


class Suite:
    """Settings of a whole run; `small` tries everything in a minute."""

    def __init__(self, out: Path, small: bool = False):
        self.out, self.small = out, small
        self.size, self.side, self.peak = ("1m", 8, 1.0) if small else ("100m", 32, matmul_peak(CPU, torch.float32))
        self.model = random_model(self.size, CPU, torch.float32)

    def random(self, load: Load, presets: Sequence[str], repeats: int, steps: int) -> list[dict]:
        """Rows of random weights, each preset run over `steps` of the load's."""
        workload, some = Workload.random(self.size, load, CPU, torch.float32, self.model), {}
        if steps < load.steps:
            some = dict.fromkeys(presets, steps)
        made = rows(workload, measure(workload, presets, repeats, some), self.peak, some)
        print_table(made)
        return made

    def drawing(self) -> None:
        """The target table: published against exact, fast against plain."""
        load = Load(grid=(self.side, self.side), steps=64)
        write_json(self.random(load, ALL, 1 if self.small else 2, 16), self.out / "random.json")

    def policies(self) -> None:
        """Single policies and what they give together."""
        names = ("exact", "interval", "adaptive", "balanced", "balanced+interval", "fast", "fast+interval")
        load = Load(grid=(self.side // 2, self.side // 2), steps=64)
        write_json(self.random(load, names, 1, 16), self.out / "policies.json")

    def editing(self) -> None:
        """Two scales, three branches: reuse of the source picture."""
        load = Load(task="edit", grid=(self.side, self.side), steps=64)
        names = ("plain", "exact", "source-reuse", "balanced")
        write_json(self.random(load, names, 1, 8), self.out / "edit.json")

    def scaling(self) -> None:
        """Cost against grid and batch."""
        sides, batches = ((4, 8), (1, 2)) if self.small else ((16, 32, 48, 64), (1, 2, 4, 8))
        loads = [Load(grid=(side, side), steps=2) for side in sides]
        loads += [replace(loads[0], batch=batch) for batch in batches if batch > 1]
        made = [row for load in loads for row in self.random(load, ("exact",), 1, 2)]
        write_json(made, self.out / "scaling.json")
        plot_cost(made, self.out / "scaling.png")

    def tiny(self) -> None:
        """The embedded model: what presets cost in quality, told by the oracle."""
        from dimoo.bench.score import add_scores
        from dimoo.pipeline import DiMOOPipeline

        pipeline, made = DiMOOPipeline.from_pretrained("dimoo-tiny"), []
        pipeline.set_progress_bar_config(disable=True)
        draw, edit = (*ALL, "adaptive", "early-finish"), ("exact", "source-reuse", "balanced", "fast")
        for task, names, count in (("generate", draw, 30), ("edit", edit, 8)):
            load = Load(task=task, grid=(8, 8), steps=64, batch=1 if self.small else 4)
            workload = Workload.of("dimoo-tiny", pipeline, load)
            part = rows(workload, measure(workload, names, 1 if self.small else 3, {}), self.peak, {})
            add_scores(part, pipeline, task, 1 if self.small else count)
            print_table(part)
            made += part
        write_json(made, self.out / "tiny.json")
        plot_quality([row for row in made if row["task"] == "generate"], self.out / "tiny.png")


PARTS: dict[str, Callable[[Suite], None]] = {
    "drawing": Suite.drawing, "policies": Suite.policies, "editing": Suite.editing, "scaling": Suite.scaling,
    "tiny": Suite.tiny,
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("assets/benchmarks"))
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--small", action="store_true", help="everything at toy sizes, to see that it runs")
    given = parser.parse_args(words)
    began, suite = time.perf_counter(), Suite(given.out, given.small)
    for part in given.part:
        PARTS[part](suite)
        print(f"{part}: done after {(time.perf_counter() - began) / 60:.1f} minutes\n", flush=True)


if __name__ == "__main__":
    main()
