"""What `dimoo bench` does once its flags are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from dimoo.bench.measure import matmul_peak, measure, rows
from dimoo.bench.report import HEADINGS, cells, plot_quality, title, write_json
from dimoo.bench.workload import BASELINE, Load, Workload, random_model
from dimoo.cli import console
from dimoo.cli.flags import Machine
from dimoo.cli.session import MODEL, load, placed
from dimoo.presets import read_preset


@dataclass(frozen=True)
class Order:
    """What is to be measured."""

    task: str
    grid: tuple[int, int]
    steps: int
    batch: int
    presets: list[str]
    random: str | None
    repeats: int
    measured_steps: int | None
    score: int
    compiled: bool

    def __post_init__(self):
        for name in ("repeats", "measured_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
        for name in self.presets:
            if name != BASELINE:
                read_preset(name)
        self.load  # noqa: B018  a wrong number shows before a model is loaded
        if self.score and self.random:
            raise ValueError("--score is for dimoo-tiny: random weights draw nothing")

    @property
    def load(self) -> Load:
        return Load(self.task, self.grid, self.steps, self.batch)


def run(order: Order, machine: Machine, json: Path | None, plot: Path | None) -> None:
    """Measure, print the table, write what was asked for."""
    if plot and not order.score:
        raise ValueError("--plot draws quality against speed: it needs --score N")
    workload = workload_of(order, machine)
    if order.compiled:
        workload.model.compile_blocks()
    some = {}
    if order.measured_steps and order.measured_steps < order.steps:
        some = dict.fromkeys(order.presets, order.measured_steps)
    peak = matmul_peak(workload.device, workload.model.dtype)
    for timed in measure(workload, order.presets, order.repeats, some, console.note):
        made = rows(workload, timed, peak)
        if json:
            write_json(made, json)                                              # so that a stop loses little
    if order.score:
        from dimoo.bench.score import add_scores

        add_scores(made, workload.pipeline, order.task, order.score, console.note)
    console.table(title(made[0]), HEADINGS, [cells(row) for row in made])
    if json:
        write_json(made, json)
    if plot:
        plot_quality(made, plot)


def workload_of(order: Order, machine: Machine) -> Workload:
    """Random weights, or a loaded checkpoint."""
    if order.random is None:
        session = load(machine)
        return Workload.of(machine.model or MODEL, session.pipeline, order.load)
    device, dtype = placed(machine)
    model = random_model(order.random, device, getattr(torch, dtype))
    return Workload.random(order.random, order.load, device, getattr(torch, dtype), model)
