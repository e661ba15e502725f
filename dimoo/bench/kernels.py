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
    keys, values = torch.zeros(2, 1, shape.length, shape.heads, d, device=device, dtype=dtype)
    turn = ops.rope_tables(torch.arange(shape.length, device=device), d, 5e5)
    rows = torch.arange(0, shape.length, 10, device=device)[None]               # of a narrow pass
    some, target = draw(1, rows.shape[1], shape.width), rows.flatten()
    at_rows = *(x[:, :, target] for x in (q, k, v)), tuple(table[:, target] for table in turn), keys, values, target
    logits = draw(2, shape.masks, shape.codes)
    places = torch.arange(shape.masks, device=device)[None]
    stream = RandomStream([(0, 0)], device).at(1, 0, places)
    ids = places % shape.codes
    moved = 2 * some.numel() * size
    return {
        "rms_norm": (ops.rms_norm, (x, draw(shape.width), 1e-5), 2 * x.numel() * size),
        "swiglu": (ops.swiglu, (gate, up), 3 * gate.numel() * size),
        "rope_into": (ops.rope_into, (q, k, v, turn, keys, values, None), 6 * q.numel() * size),
        "rope_into_rows": (ops.rope_into, at_rows, 6 * some.numel() * size),
        "apply_rope": (ops.apply_rope, (q, *turn), 2 * q.numel() * size),
        "gather_rows": (ops.gather_rows, (x, rows), moved),
        "scatter_rows": (ops.scatter_rows, (x, rows, some), moved),
        "guided_sample": (ops.guided_sample, (logits, (5.0, -4.0), 1.0, stream, None), logits.numel() * size),
        "chosen_log_prob": (ops.chosen_log_prob, (logits[:1], ids), logits[:1].numel() * size),
        "log_prob_gradient": (log_prob_gradient, (logits[:1], ids), 3 * logits[:1].numel() * size),
    }


def log_prob_gradient(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Forward and backward."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        return torch.autograd.grad(ops.chosen_log_prob(leaf, ids).sum(), leaf)[0]


def names() -> list[str]:
    return list(cases(SMALL, torch.device("cpu"), torch.float32))


def chosen() -> str:
    return os.environ.get("DIMOO_KERNELS", "auto")


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
    """Median seconds of a call, warmed up. On a GPU its own clock counts, from a cold L2 and without the launch."""
    if device.type == "cuda":
        return ops.kernel_module().device_seconds(lambda: function(*given), repeats)
    times = []
    for number in range(repeats + 3):
        began = time.perf_counter()
        function(*given)
        times += [time.perf_counter() - began] if number >= 3 else []
    return median(times)


TIES = 0.005
"""Share of rows whose two best scores are so close that they may be rounded either way."""
WAYS = {"fused": "on", "plain": "off", "compiled": "off"}
"""How an operation is computed -> DIMOO_KERNELS meanwhile."""


def speed(name: str, way: str, device: torch.device, dtype: torch.dtype, shape: Shape, repeats: int = 20) -> dict:
    """Microseconds and GB/s of one kernel computed in one way."""
    operation, given, moved = cases(shape, device, dtype)[name]
    if way == "compiled":
        operation = torch.compile(operation, dynamic=False)
    with choose(WAYS[way]), torch.inference_mode():
        took = seconds(operation, given, device, repeats)
    return {"kernel": name, "way": way, "us": round(took * 1e6, 2), "gb_per_second": round(moved / took / 1e9, 2)}


def parity(name: str, device: torch.device, dtype: torch.dtype, shape: Shape) -> float:
    """Largest difference of a kernel from its plain twin, relative to the largest value; written stores included.

    Of drawn ids the share that differs beyond TIES. Rows with other ids are left out of the rest.
    """
    found = []
    for kernels in ("on", "off"):
        torch.manual_seed(0)
        operation, given, _ = cases(shape, device, dtype)[name]
        with choose(kernels), torch.inference_mode():
            result = operation(*given)
        results = result if isinstance(result, tuple) else (result,)
        found.append([*results, *(given[4:6] if operation is ops.rope_into else ())])
    worst, agree = 0.0, None
    for a, b in zip(*found, strict=True):
        if a.dtype == torch.int64:
            agree = a == b
            error = ((~agree).float().mean() - TIES).clamp_min(0)
        else:
            off = (a.float() - b.float()).abs()
            error = (off if agree is None else off * agree).max() / b.float().abs().max().clamp_min(1e-6)
        worst = max(worst, float(error.nan_to_num(torch.inf)))                  # not a number is no small difference
    return worst
