"""`make gpu-check`: everything that only a GPU can tell, in one script of less than eight minutes.

Kernel parity on the device, bandwidth of each kernel, and the hosted model's shape with random weights: 1024x1024,
64 steps, guidance on, bfloat16. Needs torch, triton and transformers, and a checkout on the path; nothing else.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dimoo.bench import kernels
from dimoo.bench.measure import matmul_peak, measure, rows
from dimoo.bench.report import print_table, write_json
from dimoo.bench.workload import Load, Workload, random_model

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
PLAIN_STEPS = 4
"""Steps of the plain path that are run; the rest is scaled by FLOPs, and the row says so."""
PRESETS = ("plain", "exact", "published", "balanced", "fast")
LIMIT = 8 * 60


def check_kernels(device: torch.device, shape: kernels.Shape) -> list[dict[str, Any]]:
    """Parity, dtype by dtype; raises SystemExit naming the kernels that are off."""
    made, wrong = [], []
    for dtype, tolerance in TOLERANCE.items():
        for name, error in kernels.parity(device, dtype, shape).items():
            made.append({"kernel": name, "dtype": str(dtype).removeprefix("torch."), "error": error})
            wrong += [f"{name} {dtype}: {error:.2e} > {tolerance:.0e}"] if error > tolerance else []
            print(f"parity {name:16} {dtype!s:15} {error:.1e}", flush=True)
    if wrong:
        raise SystemExit("kernels differ from plain torch: " + "; ".join(wrong))
    return made


def bandwidth(device: torch.device, shape: kernels.Shape, compiled: bool) -> list[dict[str, Any]]:
    made = kernels.measure(device, torch.bfloat16, shape, compiled=compiled)
    for row in made:
        speeds = [f"{way} {row[f'{way}_gb_per_second']:8.0f} GB/s" for way in ("fused", "plain", "compiled")
                  if f"{way}_us" in row]  # fmt: skip
        print(f"{row['kernel']:16} {'  '.join(speeds)}", flush=True)
    return made


def draw(device: torch.device, size: str, load: Load, repeats: int, dtype: torch.dtype) -> list[dict[str, Any]]:
    """The presets on random weights, with and without CUDA graphs for narrow passes."""
    model = random_model(size, device, dtype)
    workload, few = Workload.random(size, load, device, dtype, model), {"plain": min(PLAIN_STEPS, load.steps)}
    peak = matmul_peak(device, dtype)
    names = (*PRESETS, *(f"{name}+graphs" for name in ("balanced", "fast") if device.type == "cuda"))
    made = rows(workload, measure(workload, names, repeats, few), peak, few)
    print_table(made)
    return made


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("assets/benchmarks"))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="toy sizes on any device, to see that it runs")
    given = parser.parse_args(words)
    if not torch.cuda.is_available() and not given.small:
        raise SystemExit("gpu-check needs an NVIDIA GPU that torch can see; --small tries the script without one")
    began, device = time.perf_counter(), torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    size, load, shape = "8b", Load(grid=(64, 64), steps=64), kernels.Shape()
    if given.small:
        size, load, shape = "1m", Load(grid=(4, 4), steps=6), kernels.SMALL
    on_gpu = device.type == "cuda"
    found = {
        "gpu": name, "torch": torch.__version__,
        "parity": check_kernels(device, kernels.SMALL),
        "rows": draw(device, size, load, given.repeats, torch.bfloat16 if on_gpu else torch.float32),
        "kernels": bandwidth(device, shape, compiled=on_gpu),
    }  # fmt: skip
    found["seconds"] = round(time.perf_counter() - began, 1)
    path = given.out / f"gpu-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.json"
    write_json([found], path)
    print(f"{name}: all done in {found['seconds']:.0f} s, written to {path}")
    if found["seconds"] > LIMIT:
        print(f"longer than the {LIMIT} s this is meant to take")


if __name__ == "__main__":
    main()
