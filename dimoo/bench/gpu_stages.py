"""The stages of `make gpu-check`, each run by `gpu` in a process of its own; what is found is on disk at once."""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from dimoo import ops
from dimoo.bench import kernels
from dimoo.bench.measure import Timed, matmul_peak, once, rows, warm_up
from dimoo.bench.report import print_table
from dimoo.bench.workload import Load, Workload
from dimoo.sampling import Step, denoise

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
PLAIN_STEPS = 4
"""Steps of the plain path that are run; the rest is scaled by FLOPs, and the row says so."""
PRESETS = ("exact", "published", "balanced", "fast", "plain")
POISONED = 3
"""Exit code: what failed has spoiled the device for this process."""
WAITING = ("exact", "balanced", "fast", "fast+interval", "adaptive", "early-finish")
"""Presets whose steps must not wait for the device."""

BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
CONTEXTS: dict[str, Callable[[], AbstractContextManager]] = {
    "kernels off": lambda: kernels.choose("off"),
    "cudnn first": lambda: sdpa_kernel(BACKENDS, set_priority=True),
}
"""Behind the comma of a label -> what it is measured under."""


class Check:
    """One stage at work: sizes, device, the time that is left, and what was found."""

    def __init__(self, path: Path, seconds: float, small: bool, skip: Sequence[str] = ()):
        self.path, self.small, self.until = path, small, time.monotonic() + seconds
        if not small and not torch.cuda.is_available():
            raise SystemExit("gpu-check needs an NVIDIA GPU that torch can see; --small tries the script without one")
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.on_gpu = self.device.type == "cuda"
        self.dtype = torch.bfloat16 if self.on_gpu else torch.float32
        self.size, self.load, self.shape = "8b", Load(grid=(64, 64), steps=64), kernels.Shape()
        if small:
            self.size, self.load, self.shape = "1m", Load(grid=(4, 4), steps=6), kernels.SMALL
        self.found: dict[str, Any] = {
            "gpu": torch.cuda.get_device_name() if self.on_gpu else "cpu", "torch": torch.__version__,
            "failed": [], "skipped": [], "tried": list(skip),
        }  # fmt: skip
        self.save()

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def add(self, name: str, row: Any) -> None:
        self.found.setdefault(name, []).append(row)
        self.save()

    def save(self) -> None:
        aside = self.path.with_name(self.path.name + ".part")
        aside.write_text(json.dumps(self.found), "utf-8")
        aside.replace(self.path)

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """What fails inside is noted, and the rest goes on, in another process where this one is spoiled."""
        self.add("tried", what)
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.failed(f"{what}: {type(error).__name__}: {str(error).partition(chr(10))[0][:300]}")
        try:
            if self.on_gpu:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
        except RuntimeError as error:
            raise SystemExit(POISONED) from error

    def once(self, what: str) -> bool:
        """Whether there is time for it, and it has not been tried before."""
        if what in self.found["tried"]:
            return False
        if self.left < 5:
            self.skipped(what)
        return self.left >= 5

    def failed(self, words: str) -> None:
        print(f"FAILED {words}", flush=True)
        self.add("failed", words)

    def skipped(self, what: str) -> None:
        print(f"no time was left for {what}", flush=True)
        self.add("skipped", what)


def parity(check: Check) -> None:
    """Every kernel against its twin: at sizes that fit no block, and at those of the hosted model."""
    shapes = {"awkward": kernels.SMALL, "hosted": check.shape}
    for name, (size, shape), (dtype, most) in product(kernels.names(), shapes.items(), TOLERANCE.items()):
        what = f"{name} {size} {str(dtype).removeprefix('torch.')}"
        if not check.once(what):
            continue
        with check.trying(what):
            error = kernels.parity(name, check.device, dtype, shape)
            check.add("parity", {"kernel": name, "size": size, "dtype": what.split()[-1], "error": error})
            print(f"parity {what:32} {error:.1e}", flush=True)
            if error > most:
                check.failed(f"{what}: differs by {error:.2e}, more than {most:.0e}")


def bandwidth(check: Check, ways: Sequence[str] = ("fused", "plain")) -> None:
    for name, way in product(kernels.names(), ways):
        if not check.once(f"{name} {way}"):
            continue
        with check.trying(f"{name} {way}"):
            row = kernels.speed(name, way, check.device, check.dtype, check.shape)
            check.add("kernels", row)
            print(f"{name:18} {way:9} {row['gb_per_second']:8.0f} GB/s", flush=True)


def compiled(check: Check) -> None:
    """What torch.compile makes of the layers, and of the same operations."""
    if check.on_gpu:
        with check.trying("compiled layers"):
            workload = Workload.random(check.size, check.load, check.device, check.dtype)
            workload.model.compile_blocks()
            timings(check, workload, {"exact, compiled": "exact"})
            del workload
        bandwidth(check, ["compiled"])


def draw(check: Check) -> None:
    """The presets on random weights; those with narrow passes also as CUDA graphs, exact also under CONTEXTS."""
    waiting(check)
    presets = {name: name for name in PRESETS}
    if check.on_gpu:
        presets |= {f"{name}+graphs": f"{name}+graphs" for name in ("balanced", "fast")}
        presets |= {f"exact, {words}": "exact" for words in CONTEXTS}
    timings(check, Workload.random(check.size, check.load, check.device, check.dtype), presets)
    if check.on_gpu and kernels.chosen() != "off" and not launches():
        check.failed("no fused kernel ran")


def timings(check: Check, workload: Workload, presets: dict[str, str], repeats: int = 3) -> None:
    """Rows of presets, each under a label; alternating, as often as there is time for."""
    peak, few = matmul_peak(check.device, check.dtype), {"plain": min(PLAIN_STEPS, check.load.steps)}
    presets = {label: preset for label, preset in presets.items() if label not in check.found["tried"]}
    timed = {label: Timed.planned(workload, preset, few) for label, preset in presets.items()}
    broken: set[str] = set()
    for repeat, (label, one) in product(range(repeats), timed.items()):
        if label in broken or check.left < 1.2 * max(one.seconds, default=3.0):
            continue
        broken.add(label)                                                       # unless it goes well
        with check.trying(label), CONTEXTS.get(label.partition(", ")[2], nullcontext)():
            if not repeat:
                warm_up(workload, one.preset)
            one.add(once(workload, one))
            broken.discard(label)
            print(f"{label}: {one.full()[-1]:.2f} s", flush=True)
        done = {label: one for label, one in timed.items() if one.seconds}
        made = rows(workload, list(done.values()), peak)
        check.found["rows"] = [row | {"preset": label} for row, label in zip(made, done, strict=True)]
        check.found["launches"] = dict(launches())
        check.save()
    for label, one in timed.items():
        if not one.seconds and label not in broken:
            check.skipped(label)
    if check.found.get("rows"):
        print_table(check.found["rows"])


def launches() -> dict[str, int]:
    """Kernel -> launches in this process: what proves that the fused branch ran."""
    module = ops.kernel_module()
    return {} if module is None else module.calls


def waiting(check: Check) -> None:
    """Whether any step of the loop makes the host wait for the device; torch raises where it does."""
    load = Load(grid=check.load.grid if check.small else (16, 16), steps=12)
    workload = Workload.random("1m", load, check.device, check.dtype)
    for preset in filter(lambda name: check.once(f"waiting in {name}"), WAITING):
        with check.trying(f"waiting in {preset}"):
            slots = workload.slots(preset, load.steps)
            denoise(workload.canvas(), workload.model, **slots)                 # what is made once is made now
            try:
                denoise(workload.canvas(), workload.model, **slots, on_step=partial(watch, steps=load.steps))
                check.add("never_waits", preset)
            finally:
                watched(False)


def watch(step: Step, steps: int) -> None:
    """Behind the first step torch begins to raise when the host waits for the device, before the last it ends."""
    watched(step.number < steps - 2)


def watched(on: bool) -> None:
    if torch.cuda.is_available():
        torch.cuda.set_sync_debug_mode("error" if on else "default")


STAGES: dict[str, Callable[[Check], None]] = {
    "parity": parity, "draw": draw, "bandwidth": bandwidth, "compiled": compiled,
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--skip", nargs="*", default=[], help="what was tried before")
    given = parser.parse_args(words)
    check = Check(given.json, given.seconds, given.small, given.skip)
    with check.trying(given.stage):
        STAGES[given.stage](check)


if __name__ == "__main__":
    main()
