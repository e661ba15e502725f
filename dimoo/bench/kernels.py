"""Each fused kernel against its plain twin and against compiled torch, at the shapes of the hosted model.

The number is bandwidth: bytes that have to be read and written at least, divided by the time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from dimoo import ops
from dimoo.bench.measure import synchronise
from dimoo.stream import RandomStream


@dataclass(frozen=True)
class Shape:
    """Sizes of one partial or full pass; the default is Lumina-DiMOO at 1024x1024."""

    length: int = 4264
    width: int = 4096
    heads: int = 32
    mlp: int = 12288
    masks: int = 2048
    codes: int = 8192


SMALL = Shape(37, 64, 4, 96, 11, 130)
Case = tuple[Callable[..., Any], tuple, int]
"""(operation, arguments, bytes that have to move)."""


def cases(shape: Shape, device: torch.device, dtype: torch.dtype) -> dict[str, Case]:
    """Name -> what to run."""
    size, d = dtype.itemsize, shape.width // shape.heads

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device=device, dtype=dtype)

    x, gate, up = draw(1, shape.length, shape.width), draw(shape.length, shape.mlp), draw(shape.length, shape.mlp)
    q, k, v = (draw(1, shape.length, shape.heads, d).transpose(1, 2) for _ in range(3))
    keys, values = torch.empty(2, 1, shape.length, shape.heads, d, device=device, dtype=dtype)
    turn = ops.rope_tables(torch.arange(shape.length, device=device), d, 5e5)
    rows = torch.arange(0, shape.length, 10, device=device)[None]
    some = draw(1, rows.shape[1], shape.width)
    logits = draw(2, shape.masks, shape.codes)
    places = torch.arange(shape.masks, device=device)[None]
    stream = RandomStream([(0, 0)], device).at(1, 0, places)
    ids = places % shape.codes
    moved = 2 * some.numel() * size
    return {
        "rms_norm": (ops.rms_norm, (x, draw(shape.width), 1e-5), 2 * x.numel() * size),
        "swiglu": (ops.swiglu, (gate, up), 3 * gate.numel() * size),
        "rope_into": (ops.rope_into, (q, k, v, turn, keys, values, None), 6 * q.numel() * size),
        "gather_rows": (ops.gather_rows, (x, rows), moved),
        "scatter_rows": (ops.scatter_rows, (x, rows, some), moved),
        "guided_sample": (ops.guided_sample, (logits, (5.0, -4.0), 1.0, stream, None), logits.numel() * size),
        "chosen_log_prob": (ops.chosen_log_prob, (logits[:1], ids), logits[:1].numel() * size),
    }


@contextmanager
def choose(kernels: str) -> Iterator[None]:
    """Within: DIMOO_KERNELS is this."""
    before = os.environ.get("DIMOO_KERNELS")
    os.environ["DIMOO_KERNELS"] = kernels
    try:
        yield
    finally:
        os.environ.pop("DIMOO_KERNELS")
        if before is not None:
            os.environ["DIMOO_KERNELS"] = before


def seconds(function: Callable[..., Any], given: tuple, device: torch.device, repeats: int) -> float:
    """Median seconds of a call, warmed up."""
    times = []
    for number in range(repeats + 3):
        synchronise(device)
        began = time.perf_counter()
        function(*given)
        synchronise(device)
        times += [time.perf_counter() - began] if number >= 3 else []
    return median(times)


def measure(
    device: torch.device, dtype: torch.dtype, shape: Shape, repeats: int = 20, compiled: bool = True
) -> list[dict[str, Any]]:
    """One row a kernel: GB/s and microseconds of fused, plain and compiled."""
    made = []
    for name, (operation, given, moved) in cases(shape, device, dtype).items():
        row: dict[str, Any] = {"kernel": name, "dtype": str(dtype).removeprefix("torch."), "bytes": moved}
        ways = {"fused": ("on", operation), "plain": ("off", operation)}
        if compiled:
            ways["compiled"] = ("off", torch.compile(operation, dynamic=False))
        for way, (kernels, function) in ways.items():
            with choose(kernels), torch.inference_mode():
                took = seconds(function, given, device, repeats)
            row[f"{way}_us"], row[f"{way}_gb_per_second"] = round(took * 1e6, 2), round(moved / took / 1e9, 2)
        made.append(row)
    return made


def parity(device: torch.device, dtype: torch.dtype, shape: Shape) -> dict[str, float]:
    """Kernel -> largest difference from the plain twin, relative to the largest value; written stores included."""
    worst = {}
    for name in cases(shape, device, dtype):
        found = []
        for kernels in ("on", "off"):
            torch.manual_seed(0)
            operation, given, _ = cases(shape, device, dtype)[name]
            with choose(kernels), torch.inference_mode():
                result = operation(*given)
            results = result if isinstance(result, tuple) else (result,)
            found.append([x.float() for x in (*results, *(given[4:6] if name == "rope_into" else ()))])
        errors = [float((a - b).abs().max() / b.abs().max().clamp_min(1e-6)) for a, b in zip(*found, strict=True)]
        worst[name] = max(errors)
    return worst
