"""Check a checkpoint folder before a weight is read: config fields, files, and the headers of every tensor.

What the files state (`files`) is compared with the model built on the meta device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from huggingface_hub import errors as hub_errors
from torch import nn
from transformers import PreTrainedConfig

from dimoo.locate import is_on_hub, locate
from dimoo.model.config import REQUIRED_FIELDS, LLaDAConfig
from dimoo.model.files import Stored, few, read_json, read_tensors
from dimoo.model.size import skeleton
from dimoo.vocab import CheckpointError

CONFIG = "config.json"
BYTES_OF = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Readable dtypes by their safetensors name -> bytes of one number."""

KINDS = {name: (int,) for name in (*REQUIRED_FIELDS, "n_kv_heads", "embedding_size")} | {
    "rope_theta": (int, float),
    "rms_norm_eps": (int, float),
}
EXISTENCE = ("n_layers", "weight_tying", "include_qkv_bias", "qk_norm")
"""Fields that decide which tensors there are."""
SHAPES = {
    "wte": ("vocab_size", "embedding_size", "d_model"),
    "transformer.ff_out": ("vocab_size", "embedding_size", "d_model"),
    "k_proj": ("n_kv_heads", "n_heads", "d_model"),
    "v_proj": ("n_kv_heads", "n_heads", "d_model"),
    "q_norm": ("d_model", "n_heads"),
    "k_norm": ("d_model", "n_heads"),
    "ff_proj": ("mlp_hidden_size", "d_model"),
    "up_proj": ("mlp_hidden_size", "d_model"),
    "ff_out": ("mlp_hidden_size", "d_model"),
    "": ("d_model",),
}
"""End of a module's name -> the fields that decide its shape; the first that fits counts."""

HUB_KEYS = ("cache_dir", "force_download", "local_files_only", "revision", "token")


class CheckedLoading:
    """Mix in before `PreTrainedModel`: `from_pretrained` refuses a broken or foreign checkpoint at once."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path | None, *args, **kwargs):
        """Check a folder, an embedded checkpoint or a hub id, then load it with transformers, with all its arguments.

        Raises:
            CheckpointError: see `check_checkpoint` and `locate`.
        """
        name = pretrained_model_name_or_path
        if name is not None:
            subfolder = kwargs.get("subfolder") or ""
            folder = locate(name, subfolder, **{key: kwargs[key] for key in HUB_KEYS if key in kwargs})
            if is_on_hub(name):                                  # load the very files that are checked here
                kwargs |= {"revision": folder.name, "force_download": False}
            else:
                name = folder
            known = {field.name for field in fields(cls.config_class)} | {"config", "variant"}
            check_checkpoint(
                folder / subfolder, cls.config_class, cls, **{k: v for k, v in kwargs.items() if k in known}
            )
            kwargs["use_safetensors"] = True
        return super().from_pretrained(name, *args, **kwargs)


def check_checkpoint(
    folder: str | Path,
    config_class: type[PreTrainedConfig] = LLaDAConfig,
    model_class: type[nn.Module] | None = None,
    *,
    config: PreTrainedConfig | None = None,
    variant: str | None = None,
    **overrides: Any,
) -> PreTrainedConfig:
    """Refuse a checkpoint folder that cannot be loaded faithfully; return its config.

    A `config` replaces the folder's own and `overrides` some of its fields, as in `from_pretrained`;
    `model_class` is the one registered for the config when None. Where the config states a
    `quantization_config`, the files hold other tensors than the model, so only the files are checked.

    Raises:
        CheckpointError: naming file, tensor and field: a config that is missing, unreadable or lacks a field;
            weights that are missing, truncated, Git LFS pointers or not safetensors; an index that disagrees
            with its shards; tensors missing, unknown, of another shape, or of a dtype that is not a float.
    """
    stated = read_config(Path(folder), config_class, **overrides)
    config = config if isinstance(config, PreTrainedConfig) else stated
    found = read_tensors(Path(folder), variant)
    if getattr(config, "quantization_config", None) is None:
        wanted = {name: tuple(t.shape) for name, t in skeleton(config, model_class).state_dict().items()}
        _compare_names(Path(folder), found, wanted, config)
        for name, shape in wanted.items():
            _compare_tensor(name, found[name], shape, config)
    return config


def read_config(folder: Path, config_class: type[PreTrainedConfig], **overrides: Any) -> PreTrainedConfig:
    """config.json as a config, once every required field is there and a number.

    Raises:
        CheckpointError: the file or a field is missing or has a value that the model cannot compute.
    """
    path = folder / CONFIG
    raw = read_json(path) | overrides
    missing = [name for name in REQUIRED_FIELDS if raw.get(name) is None]
    if missing:
        raise CheckpointError(f"{path} lacks {', '.join(missing)}")
    for name in KINDS:
        _check_number(path, name, raw.get(name))
    try:
        config = config_class(**raw)
    except (ValueError, TypeError, hub_errors.StrictDataclassError) as error:
        words = str(error.__cause__ or error).removeprefix(f"{CONFIG}: ")
        raise CheckpointError(f"{path}: {words}") from error
    if not config.mask_token_id < config.vocab_size <= config.embedding_rows:
        values = _state(config, ("mask_token_id", "vocab_size", "embedding_size"))
        raise CheckpointError(f"{path}: {values} contradict each other: each must fit into the next")
    return config


def _compare_names(folder: Path, found: dict, wanted: dict, config: PreTrainedConfig) -> None:
    missing, extra = (
        [name for name in one if name not in two] for one, two in ((wanted, found), (found, wanted))
    )
    parts = [f"{len(wanted) - len(missing)} of {len(wanted)} tensors"]
    parts += [f"missing: {few(missing)}"] if missing else []
    parts += [f"{len(extra)} that the model does not have: {few(extra)}"] if extra else []
    if len(parts) > 1:
        raise CheckpointError(f"{folder}: {'; '.join(parts)} ({CONFIG}: {_state(config, EXISTENCE)})")


def _compare_tensor(name: str, stored: Stored, shape: tuple[int, ...], config: PreTrainedConfig) -> None:
    where = f"{stored.file}: tensor {name}"
    if stored.shape != shape:
        module = name.rpartition(".")[0]
        decide = next(names for end, names in SHAPES.items() if module.endswith(end))
        ask = f"the model {list(shape)} ({CONFIG}: {_state(config, decide)})"
        raise CheckpointError(f"{where} has shape {list(stored.shape)}, {ask}")
    if stored.dtype not in BYTES_OF:
        raise CheckpointError(f"{where} has dtype {stored.dtype}; readable: {', '.join(BYTES_OF)}")
    needed = math.prod(shape) * BYTES_OF[stored.dtype]
    if stored.size != needed:
        raise CheckpointError(f"{where} has {stored.size} bytes, {stored.dtype} {list(shape)} needs {needed}")


def _check_number(path: Path, name: str, value: Any) -> None:
    sign, least = ("non-negative", -1) if name == "mask_token_id" else ("positive", 0)
    if value is not None and (type(value) not in KINDS[name] or not value > least):
        kind = KINDS[name][-1].__name__
        raise CheckpointError(f"{path}: {name}={value!r}, but it must be a {sign} {kind}")


def _state(config: PreTrainedConfig, names: Iterable[str]) -> str:
    return ", ".join(f"{name}={getattr(config, name)}" for name in names if hasattr(config, name))
