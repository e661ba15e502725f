"""The optional extras: what each brings, and reaching code that needs one."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from dimoo.resolve import resolve

EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "app": ("the studio and the HTTP API", ("gradio", "fastapi", "uvicorn", "prometheus_client", "python_multipart")),
    "train": ("training", ("tensorboard", "datasets", "peft", "matplotlib")),
    "kernels": ("Triton kernels for NVIDIA GPUs", ("triton",)),
    "eval": ("CLIP scores", ("open_clip",)),
    "ray": ("batches on several machines", ("ray",)),
    "quant": ("8-bit and 4-bit weights", ("bitsandbytes", "torchao")),
}
"""Extra -> what it is for, and the modules it brings."""


def missing(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [module for module in EXTRAS[extra][1] if find_spec(module) is None]


def install(extra: str) -> str:
    """The one line that installs an extra."""
    return f"pip install 'dimoo[{extra}]'"


def reach(target: str, extra: str) -> Callable:
    """The function `module:name` of a package that the core does not import. Raises ValueError naming the extra."""
    try:
        return resolve(target, {}, "command")
    except (ModuleNotFoundError, ValueError) as error:
        absent = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        if not isinstance(absent, ModuleNotFoundError):
            raise
        raise ValueError(f"this needs the extra [{extra}], {absent.name} is missing: {install(extra)}") from error
