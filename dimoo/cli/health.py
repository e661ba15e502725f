"""The tables of `dimoo doctor`."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil  # comes with accelerate
import torch
from rich.text import Text

from dimoo import __version__
from dimoo.cli import console
from dimoo.cli.extras import EXTRAS, install, missing
from dimoo.cli.memory import REST, Model, read_model
from dimoo.locate import EMBEDDED, HOSTED

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux states how much memory a container may take."""
DTYPES = (torch.bfloat16, torch.float32)
GIB = 2**30


@dataclass(frozen=True)
class Device:
    """Something to compute on. Bytes of memory in all, and free now."""

    name: str
    words: str
    total: int
    free: int
    dtypes: tuple[str, ...]


def show(model: str | None) -> None:
    """Print everything. `model` is a further one to estimate. Raises CheckpointError when it is not there."""
    models = list(known_models(model))
    places = devices()
    versions = {"dimoo": __version__, "python": platform.python_version(), "torch": torch.__version__}
    console.facts("Software", {**versions, "system": platform.platform(terse=True)})
    rows = [(d.name, d.words, size(d.total), size(d.free), ", ".join(d.dtypes)) for d in places]
    console.table("\nDevices", ("device", "", "memory", "free", "dtypes"), rows)
    console.table("\nExtras", ("extra", "for", ""), [extra_row(extra) for extra in EXTRAS])
    for one in models:
        title = f"\n{one.name}: {one.parameters}"
        rows = [estimate_row(one, dtype, device) for device in places for dtype in DTYPES]
        console.table(title, ("device", "dtype", "weights", "cache", "in all", ""), rows)
    picture = "cache: keys and values of one picture of the default size, drawn with --cache max-logit"
    console.note(f"{picture}; in all: with {size(REST)} for activations, the image tokenizer and torch itself")


def known_models(model: str | None) -> Iterator[Model]:
    """The embedded model, the hosted one, and the asked one."""
    if model is not None:
        yield read_model(model)
    for name in (*EMBEDDED, HOSTED):
        if name != model:
            try:
                yield read_model(name)
            except ValueError as error:
                console.note(str(error))


def devices() -> list[Device]:
    """The processor, then every CUDA device."""
    memory = psutil.virtual_memory()
    limit = container_limit()
    words = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    dtypes = ("float32", "bfloat16", "float16")
    found = [Device("cpu", words, min(memory.total, limit), min(memory.available, limit), dtypes)]
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        names = dtypes if torch.cuda.is_bf16_supported() else ("float32", "float16")
        found.append(Device(f"cuda:{number}", torch.cuda.get_device_name(number), total, free, names))
    return found


def container_limit() -> int:
    """Bytes this container may take; without a limit, very many."""
    texts = [Path(path).read_text().strip() for path in LIMITS if Path(path).is_file()]
    return min((int(text) for text in texts if text.isdecimal()), default=2**63)


def extra_row(extra: str) -> tuple[str, str, Text]:
    state = Text(install(extra), "yellow") if missing(extra) else Text("installed", "green")
    return extra, EXTRAS[extra][0], state


def estimate_row(model: Model, dtype: torch.dtype, device: Device) -> tuple:
    weights, cache = model.estimate(dtype)
    needed = weights + cache + REST
    verdict = Text("fits", "green") if needed <= device.free else Text("does not fit", "red")
    return device.name, str(dtype).removeprefix("torch."), size(weights), size(cache), size(needed), verdict


def size(count: int) -> str:
    """Bytes for people."""
    return f"{count / GIB:.1f} GiB" if count >= 0.1 * GIB else f"{count / 2**20:.1f} MiB"
