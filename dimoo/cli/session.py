"""A loaded model, and what a picture has to know about it to be repeated."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dimoo import __version__
from dimoo.cli.flags import Machine, Sampling, flag_of
from dimoo.locate import locate
from dimoo.pipeline import DiMOOPipeline
from dimoo.seeds import Start
from dimoo.settings import Defaults, Settings

MODEL = "dimoo-tiny"
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}
"""Kind of device -> its usual precision."""
ALLOWED_DTYPES = ("float32", "bfloat16", "float16")
SLICES, SLICE = 16, 65536


@dataclass(frozen=True)
class Session:
    """A pipeline on its device."""

    pipeline: DiMOOPipeline
    model: str
    fingerprint: str
    device: str
    dtype: str

    def parameters(self) -> dict[str, Any]:
        """What pixels depend on besides the request and the settings."""
        return {
            "model": self.model, "model_fingerprint": self.fingerprint, "device": self.device, "dtype": self.dtype,
        }  # fmt: skip

    def record(self, request: dict[str, Any], settings: Settings, kind: str, start: Start) -> dict[str, Any]:
        """Everything that makes an answer, as a picture keeps it. `settings` are filled."""
        seed, index = start
        made_of = {"dimoo": __version__, **self.parameters(), **request, **stated(settings, kind)}
        return {**made_of, "seed": seed, "index": index}


def load(machine: Machine) -> Session:
    """Load the model. Raises ValueError for a device or dtype that is not there, and for a broken checkpoint."""
    device, dtype = placed(machine)
    name = machine.model or MODEL
    folder = locate(name)
    quiet()
    pipeline = DiMOOPipeline.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device)
    pipeline.set_progress_bar_config(disable=True)
    return Session(pipeline, name, fingerprint(folder), str(device), dtype)


def placed(machine: Machine) -> tuple[torch.device, str]:
    """Where to compute and how precisely. Raises ValueError for a device or dtype that is not there."""
    device = find_device(machine.device or "auto")
    dtype = machine.dtype or DTYPES[device.type]
    if dtype not in ALLOWED_DTYPES:
        raise ValueError(f"unknown --dtype {dtype!r}; allowed: {', '.join(ALLOWED_DTYPES)}")
    return device, dtype


def find_device(name: str) -> torch.device:
    """auto takes the GPU when there is one."""
    there = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if there else "cpu")
    kind, colon, number = name.partition(":")
    if kind not in DTYPES or (colon and not number.isdecimal()):
        raise ValueError(f"unknown --device {name!r}; allowed: auto, cpu, cuda, cuda:0, cuda:1, ...")
    count = torch.cuda.device_count() if there else 0
    if kind == "cuda" and int(number or 0) >= count:
        raise ValueError(f"--device {name}: this machine has {count} CUDA devices; see: dimoo doctor")
    return torch.device(name)


def fingerprint(folder: Path) -> str:
    """Tells weights apart without reading all of them: sizes, and slices spread over every file."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.safetensors")):
        size = path.stat().st_size
        found.update(f"{path.relative_to(folder).as_posix()} {size}\n".encode())
        with path.open("rb") as file:
            for part in range(SLICES):
                file.seek(max(0, size - SLICE) * part // (SLICES - 1))
                found.update(file.read(SLICE))
    return found.hexdigest()[:16]


def quiet() -> None:
    """The libraries' own loading bars would stand between ours."""
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    for logging in (transformers_logging, diffusers_logging):
        logging.disable_progress_bar()
        logging.set_verbosity_error()


def checked(settings: dict[str, Any], kind: str = "draw") -> Settings:
    """Settings, with every name and number looked at before a model is loaded. Raises ValueError naming a flag."""
    try:
        made = Settings(**settings)
        filled = made.filled(Defaults(), kind)
        filled.scheduler(), filled.guider(), filled.blocks(kind), filled.cache_policy(), filled.searcher()
    except ValueError as error:
        name, space, rest = str(error).partition(" ")
        raise ValueError(f"{flag_of(name)}{space}{rest}" if name in vars(Sampling()) else str(error)) from error
    return made


def stated(settings: Settings, kind: str) -> dict[str, Any]:
    """What filled settings come to, as a picture keeps them; what is not there is no limit."""
    unused = set() if kind == "text" else {"block_length"}
    return {name: value for name, value in vars(settings).items() if value is not None and name not in unused}
