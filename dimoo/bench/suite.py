"""Every CPU number of the documentation: `python -m dimoo.bench.suite --out assets/benchmarks`.

About 25 minutes on two quiet cores, or in slices: `--part drawing`. What was measured is kept at once in a journal, so
a run that was stopped goes on where it was when it is started again, unless code or weights have changed. Long
schedules are measured over fewer steps with the same shares of full and partial passes, and scaled by the FLOPs of all
steps; the rows state `measured_steps`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch

import dimoo
from dimoo.assets import asset
from dimoo.bench.journal import Journal, fingerprint
from dimoo.bench.measure import matmul_peak, measured_rows, processor
from dimoo.bench.report import plot_cost, plot_quality, print_table, write_json
from dimoo.bench.workload import Load, Workload, random_model

ALL = ("plain", "exact", "published", "balanced", "fast")
POLICIES = ("exact", "interval", "prompt-reuse", "adaptive", "balanced", "balanced+interval", "fast", "fast+interval")
DRAWINGS = (*ALL, "interval", "adaptive", "early-finish", "fast+interval")
EDITS = ("exact", "source-reuse", "prompt-reuse", "balanced", "fast")
CPU = torch.device("cpu")


class Suite:
    """Settings of a whole run.

    Args:
        out: folder of the results.
        journal: where single timings and scores are kept until their part is done.
        repeats: runs of each preset in `drawing`. count, seeds: requests of each kind, and drawings of each.
        small: tries everything in a minute.
    """

    def __init__(self, out: Path, journal: Journal, repeats: int = 2, count: int = 20, seeds: int = 1, small=False):
        self.out, self.journal, self.small = out, journal, small
        self.repeats, self.count, self.seeds = (1, 1, 1) if small else (repeats, count, seeds)
        self.size, self.side = ("1m", 8) if small else ("100m", 32)

    @cached_property
    def peak(self) -> float:
        return self.journal.remember("peak", lambda: matmul_peak(CPU, torch.float32))

    @cached_property
    def model(self):
        return random_model(self.size, CPU, torch.float32)

    def random(self, load: Load, presets: Sequence[str], repeats: int, steps: int, **fewer: int) -> list[dict]:
        """Rows of random weights, each preset run over `steps` of the load's, or over `fewer`."""
        workload = Workload.random(self.size, load, CPU, torch.float32, self.model)
        some = dict.fromkeys(presets, steps) | fewer if steps < load.steps else {}
        made = measured_rows(workload, presets, repeats, some, self.peak, journal=self.journal)
        print_table(made)
        return made

    def drawing(self) -> None:
        """The target table: exact against plain, published against exact, fast against plain."""
        load = Load(grid=(self.side, self.side), steps=64)
        write_json(self.random(load, ALL, self.repeats, 16), self.out / "random.json")

    def policies(self) -> None:
        """Single policies and what they give together."""
        load = Load(grid=(self.side // 2, self.side // 2), steps=64)
        write_json(self.random(load, POLICIES, 1, 16), self.out / "policies.json")

    def editing(self) -> None:
        """Two scales, three branches: reuse of the source picture."""
        load = Load(task="edit", grid=(self.side, self.side), steps=64)
        made = self.random(load, ("plain", "exact", "source-reuse", "balanced"), 1, 8, plain=3)
        write_json(made, self.out / "edit.json")

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
        for task, names, count in (("generate", DRAWINGS, self.count), ("edit", EDITS, -(-self.count // 2))):
            load = Load(task=task, grid=(8, 8), steps=64, batch=1 if self.small else 4)
            workload = Workload.of("dimoo-tiny", pipeline, load)
            part = measured_rows(workload, names, 1 if self.small else 3, {}, self.peak, journal=self.journal)
            add_scores(part, pipeline, task, count, seeds=self.seeds, journal=self.journal)
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
    parser.add_argument("--journal", type=Path, default=Path("out/bench"), help="folder of what is under way")
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=2, help="of `drawing`")
    parser.add_argument("--count", type=int, default=20, help="requests of each kind for the oracle")
    parser.add_argument("--seeds", type=int, default=1, help="drawings of each request")
    parser.add_argument("--small", action="store_true", help="everything at toy sizes, to see that it runs")
    given = parser.parse_args(words)
    code = fingerprint(*map(Path, dimoo.__path__), asset("dimoo-tiny"), asset("evaluation"))
    stamp = f"{code} {torch.__version__} {processor()} {torch.get_num_threads()} {given.small}"
    journals = {part: Journal(given.journal / f"{part}.jsonl", stamp) for part in given.part}
    began = time.perf_counter()
    suite = Suite(given.out, Journal(), given.repeats, given.count, given.seeds, given.small)
    for part, journal in journals.items():
        suite.journal = journal
        journal.remember("done", lambda part=part: PARTS[part](suite))
        print(f"{part}: done after {(time.perf_counter() - began) / 60:.1f} minutes\n", flush=True)
    for journal in journals.values():
        journal.forget()


if __name__ == "__main__":
    main()
