"""Timing presets against the plain path, alternating, and counting what they use."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import torch

from dimoo.bench.count import Counted, Idle
from dimoo.bench.journal import Journal
from dimoo.bench.workload import BASELINE, Workload
from dimoo.sampling import denoise


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matmul_peak(device: torch.device, dtype: torch.dtype, rounds: int = 5) -> float:
    """The best FLOP/s of a large square matrix product here: what a model could reach at most."""
    side = 8192 if device.type == "cuda" else 1536
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(rounds):
        synchronise(device)
        began = time.perf_counter()
        a @ b
        synchronise(device)
        best = min(best, time.perf_counter() - began)
    return 2 * side**3 / best


class PeakMemory:
    """Peak memory in MB while inside: of the allocator on a GPU, else of the process as Linux counts it."""

    def __init__(self, device: torch.device, every: float = 0.02):
        self.device, self.every, self.peak = device, every, 0.0

    def __enter__(self) -> PeakMemory:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            self._done = threading.Event()
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.device.type == "cuda":
            self.peak = torch.cuda.max_memory_allocated(self.device) / 2**20
        else:
            self._done.set()
            self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, resident())
            if self._done.wait(self.every):
                return


def resident() -> float:
    """MB of this process in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 2**20
    except OSError:
        return 0.0


@dataclass
class Timed:
    """What one preset took; `steps` of its schedule are run."""

    preset: str
    steps: int
    scale: float = 1.0
    """FLOPs of all steps over those of the steps that are run, where these are fewer."""
    forwards: int = 0
    """Of the whole schedule."""
    flops: int = 0
    seconds: list[float] = field(default_factory=list)
    memory: float = 0.0

    @classmethod
    def planned(cls, workload: Workload, preset: str, measured: dict[str, int]) -> Timed:
        whole = workload.load.steps
        one = cls(preset, measured.get(preset, whole))
        if one.steps < whole:
            all_, some = (count(workload, preset, steps) for steps in (whole, one.steps))
            one.forwards, one.scale = all_.forwards // workload.load.batch, all_.flops / some.flops
        return one

    def full(self) -> list[float]:
        """Seconds of the whole schedule: as measured, or in proportion to the FLOPs when fewer steps were run."""
        return [one * self.scale for one in self.seconds]

    def add(self, found: dict[str, float]) -> None:
        """What `once` gave."""
        self.seconds.append(found["seconds"])
        self.forwards = self.forwards or int(found["forwards"])
        self.flops, self.memory = round(found["flops"] * self.scale), max(self.memory, found["memory"])


def run(workload: Workload, preset: str, steps: int, denoiser=None) -> float:
    """Seconds of one generation, without making the canvas and without decoding pictures."""
    slots, canvas = workload.slots(preset, steps), workload.canvas()
    synchronise(workload.device)
    began = time.perf_counter()
    denoise(canvas, denoiser or workload.model, **slots)
    synchronise(workload.device)
    return time.perf_counter() - began


def count(workload: Workload, preset: str, steps: int) -> Counted:
    """Forwards and FLOPs of a schedule, without computing it."""
    counted = Counted(Idle(workload.model))
    denoise(workload.canvas(), counted, **workload.slots(preset, steps))
    return counted


def warm_up(workload: Workload, preset: str) -> None:
    """A few steps, so that nothing is timed for the first time."""
    run(workload, preset, max(1, min(2, workload.load.steps - 1)))


def once(workload: Workload, one: Timed) -> dict[str, float]:
    """One timed run."""
    real = Counted(workload.model)
    with PeakMemory(workload.device) as memory:
        seconds = run(workload, one.preset, one.steps, real)
    forwards = real.forwards // workload.load.batch
    return {"seconds": seconds, "memory": memory.peak, "forwards": forwards, "flops": real.flops}


def measure(
    workload: Workload, presets: Sequence[str], repeats: int, measured: dict[str, int],
    log: Callable[[str], Any] = print, journal: Journal | None = None,
) -> Iterator[list[Timed]]:  # fmt: skip
    """Run every preset `repeats` times, one after the other; after each run, what is known so far.

    measured: steps to run, where not all of them. journal: where runs of an interrupted measurement are kept.
    """
    journal, warm = journal or Journal(), set()
    timed = [Timed.planned(workload, preset, measured) for preset in presets]

    def made(one: Timed) -> dict[str, float]:
        what = one.preset if workload.device.type == "cuda" else "all"          # on a CPU nothing is compiled
        if what not in warm:
            warm_up(workload, one.preset)
            warm.add(what)
        return once(workload, one)

    for repeat in range(repeats):
        for one in timed:
            one.add(journal.remember(f"{workload.key} {one.preset} {one.steps} {repeat}", partial(made, one)))
            log(f"{workload.load.task} {one.preset}: {one.full()[-1]:.2f} s")
            yield [each for each in timed if each.seconds]


def measured_rows(workload: Workload, presets: Sequence[str], repeats: int, measured: dict[str, int], peak: float,
                  **given) -> list[dict[str, Any]]:  # fmt: skip
    """The rows of a whole measurement; `given` as in `measure`."""
    *_, timed = measure(workload, presets, repeats, measured, **given)
    return rows(workload, timed, peak)


def rows(workload: Workload, timed: Sequence[Timed], peak: float) -> list[dict[str, Any]]:
    """One row for each preset; the first fourteen keys are fixed."""
    load, plain = workload.load, next((one for one in timed if one.preset == BASELINE), None)
    made = []
    for one in timed:
        seconds = one.full()
        middle = median(seconds)
        made.append({
            "task": load.task, "preset": one.preset, "model": workload.name, "grid": "{}x{}".format(*load.grid),
            "steps": load.steps, "batch": load.batch, "seconds_median": round(middle, 4),
            "seconds_min": round(min(seconds), 4), "seconds_max": round(max(seconds), 4),
            "ratio_to_plain": plain and round(median(plain.full()) / middle, 3), "forwards": one.forwards,
            "flops": one.flops, "peak_memory_mb": round(one.memory, 1), "score": None,
            "measured_steps": one.steps, "repeats": len(seconds),
            "flops_per_second": round(one.flops / middle), "share_of_peak": round(one.flops / middle / peak, 4),
            **machine(workload, peak),
        })  # fmt: skip
    return made


def machine(workload: Workload, peak: float) -> dict[str, Any]:
    """Where it was measured."""
    device = workload.device
    on_gpu = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if on_gpu else f"{processor()}, {torch.get_num_threads()} threads"
    return {
        "device": name, "dtype": str(workload.model.dtype).removeprefix("torch."), "torch": torch.__version__,
        "matmul_peak": round(peak),
    }  # fmt: skip


def processor() -> str:
    """The name of the processor, as far as the system says."""
    try:
        with open("/proc/cpuinfo") as file:
            named = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(named, "") or platform.machine()
    except OSError:
        return platform.processor() or platform.machine()
