"""Timing presets against the plain path, alternating, and counting what they use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from dimoo.bench.count import Counted, Idle
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
    """What one preset took."""

    preset: str
    seconds: list[float] = field(default_factory=list)
    memory: float = 0.0
    forwards: int = 0
    flops: int = 0
    scale: float = 1.0
    """FLOPs of all steps over those of the steps that were run, where these were fewer."""

    def full(self) -> list[float]:
        """Seconds of the whole schedule: as measured, or in proportion to the FLOPs when fewer steps were run."""
        return [one * self.scale for one in self.seconds]


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


def measure(
    workload: Workload, presets: Sequence[str], repeats: int, measured: dict[str, int],
    log: Callable[[str], Any] = print,
) -> list[Timed]:  # fmt: skip
    """Run every preset `repeats` times, one after the other. `measured`: steps to run, where not all of them.

    Before that each runs once in two steps, so that nothing is timed for the first time.
    """
    steps = workload.load.steps
    timed = [Timed(preset) for preset in presets]
    for one in timed:
        if one.preset in measured:
            whole, some = (count(workload, one.preset, n) for n in (steps, measured[one.preset]))
            one.forwards, one.scale = whole.forwards // workload.load.batch, whole.flops / some.flops
        run(workload, one.preset, min(2, steps))
    for _ in range(repeats):
        for one in timed:
            real = Counted(workload.model)
            with PeakMemory(workload.device) as memory:
                one.seconds.append(run(workload, one.preset, measured.get(one.preset, steps), real))
            one.forwards = one.forwards or real.forwards // workload.load.batch
            one.flops, one.memory = round(real.flops * one.scale), max(one.memory, memory.peak)
            log(f"{workload.load.task} {one.preset}: {one.full()[-1]:.2f} s")
    return timed


def rows(workload: Workload, timed: Sequence[Timed], peak: float, measured: dict[str, int]) -> list[dict[str, Any]]:
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
            "measured_steps": measured.get(one.preset, load.steps), "repeats": len(seconds),
            "flops_per_second": round(one.flops / middle), "share_of_peak": round(one.flops / middle / peak, 4),
            **machine(workload, peak),
        })  # fmt: skip
    return made


def machine(workload: Workload, peak: float) -> dict[str, Any]:
    """Where it was measured."""
    device = workload.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    return {
        "device": name, "dtype": str(workload.model.dtype).removeprefix("torch."), "torch": torch.__version__,
        "matmul_peak": round(peak),
    }  # fmt: skip
