"""Check a checkpoint folder before a weight is read: config fields, files, and the headers of every tensor.

Only json files and safetensors headers are opened, so the 8B checkpoint takes as long as a tiny one. What
is found is compared with the model built on the meta device. Sizes are in bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import errors as hub_errors
from huggingface_hub import snapshot_download
from torch import nn
from transformers import AutoModel, PreTrainedConfig

from dimoo.model.config import REQUIRED_FIELDS, LLaDAConfig
from dimoo.vocab import CheckpointError

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
POINTER = b"version https://git-lfs"
LONGEST_HEADER = 100_000_000
"""What the format allows; an 8B model needs 30 thousand."""
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
HUB_ERRORS = (
    hub_errors.HFValidationError,
    hub_errors.LocalEntryNotFoundError,
    hub_errors.RepositoryNotFoundError,
    hub_errors.RevisionNotFoundError,
)


@dataclass(frozen=True)
class Stored:
    """One tensor as the header of `file` states it; `size` is the bytes the header gives it."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    size: int


class CheckedLoading:
    """Mix in before `PreTrainedModel`: `from_pretrained` refuses a broken or foreign checkpoint at once."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path | None, *args, **kwargs):
        """Check a folder or hub id, then load it with transformers, all of whose arguments work.

        Raises:
            CheckpointError: see `check_checkpoint` and `locate`.
        """
        name = pretrained_model_name_or_path
        if name is not None:
            subfolder = kwargs.get("subfolder") or ""
            folder = locate(name, subfolder, **{key: kwargs[key] for key in HUB_KEYS if key in kwargs})
            if not Path(name).is_dir():  # load the very files that are checked here
                kwargs |= {"revision": folder.name, "force_download": False}
            known = {field.name for field in fields(cls.config_class)} | {"config", "variant"}
            check_checkpoint(
                folder / subfolder, cls.config_class, cls, **{k: v for k, v in kwargs.items() if k in known}
            )
            kwargs["use_safetensors"] = True
        return super().from_pretrained(name, *args, **kwargs)


def locate(name: str | Path, subfolder: str = "", **hub: Any) -> Path:
    """The local folder `name`, or the snapshot of the hub id `name`, downloaded where the cache lacks it.

    `hub` holds revision, token, cache_dir, local_files_only and force_download.

    Raises:
        CheckpointError: there is neither.
    """
    if Path(name).is_dir():
        return Path(name)
    under = f"{subfolder}/" if subfolder else ""
    wanted = [f"{under}*.json", f"{under}*.safetensors"]
    try:
        return Path(snapshot_download(str(name), allow_patterns=wanted, **hub))
    except HUB_ERRORS as error:
        raise CheckpointError(f"{name} is neither a folder nor a model on the hub: {error}") from error


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
    raw = _read_json(path) | overrides
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


def read_tensors(folder: Path, variant: str | None = None) -> dict[str, Stored]:
    """Name -> what the weight files state; one file is preferred to shards, as transformers does.

    Raises:
        CheckpointError: no safetensors file, a damaged one, or an index that disagrees with its shards.
    """
    single, index = (folder / _with_variant(name, variant) for name in (WEIGHTS, INDEX))
    if single.is_file():
        return read_header(single)
    if index.is_file():
        return read_shards(index)
    pickled = [path.name for path in folder.glob("*.bin")]
    if pickled:
        raise CheckpointError(
            f"{folder} has only pickled weights ({_few(pickled)}), and reading those can run code: "
            f"convert them to {WEIGHTS} first"
        )
    raise CheckpointError(f"{folder} has no weights: neither {single.name} nor {index.name}")


def read_shards(index: Path) -> dict[str, Stored]:
    """Tensors of all shards of an index.

    Raises:
        CheckpointError: the index and its shards do not name the same tensors, or a shard is missing.
    """
    homes = _read_json(index).get("weight_map")
    if not isinstance(homes, dict) or not homes:
        raise CheckpointError(f"{index} has no weight_map from tensors to shards")
    homeless = [name for name, shard in homes.items() if not (isinstance(shard, str) and shard)]
    _refuse(homeless, f"{index} names no shard for")
    shards = sorted(set(homes.values()))
    absent = [shard for shard in shards if not (index.parent / shard).is_file()]
    _refuse(absent, f"{index}: {len(absent)} of {len(shards)} shards are not there:")
    found: dict[str, Stored] = {}
    for shard in shards:
        held = read_header(index.parent / shard)
        lost = [name for name, home in homes.items() if home == shard and name not in held]
        _refuse(lost, f"{index.parent / shard} does not hold what {index.name} says it has:")
        _refuse(
            [name for name in held if homes.get(name) != shard], f"{index} does not say that {shard} holds"
        )
        found |= held
    return found


def read_header(path: Path) -> dict[str, Stored]:
    """Tensors of one safetensors file: 8 bytes with the length of a json header, that header, the numbers.

    Raises:
        CheckpointError: an empty, cut or foreign file, or a Git LFS pointer.
    """
    _refuse_pointer(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start.ljust(8, b"\0"))[0]
        if not 0 < length <= min(size - 8, LONGEST_HEADER):
            raise CheckpointError(f"{path} is cut in its header ({size} bytes), or it is not safetensors")
        entries = _parse(path, file.read(length))
    entries.pop("__metadata__", None)
    try:
        ends = {name: 8 + length + entry["data_offsets"][1] for name, entry in entries.items()}
        found = {name: _stored(path, entry) for name, entry in entries.items()}
        promised = max(ends.values(), default=8 + length)
    except (LookupError, TypeError) as error:
        raise CheckpointError(f"{path}: its header does not describe tensors") from error
    cut = [name for name, end in ends.items() if end > size]
    _refuse(cut, f"{path} is cut: {size} of {promised} bytes, {len(cut)} of {len(ends)} tensors incomplete:")
    if size > promised:
        raise CheckpointError(f"{path} has {size} bytes, its header describes {promised}")
    return found


def skeleton(config: PreTrainedConfig, model_class: type[nn.Module] | None = None) -> nn.Module:
    """The model without memory, on the meta device; of the class registered for the config when None."""
    with torch.device("meta"):
        return model_class(config) if model_class else AutoModel.from_config(config)


def parameter_count(config: PreTrainedConfig) -> int:
    """Parameters of the model that `config` describes; nothing is allocated."""
    return sum(parameter.numel() for parameter in skeleton(config).parameters())


def memory_estimate(config: PreTrainedConfig, dtype: torch.dtype, cached_tokens: int = 0) -> int:
    """Bytes of the weights, and of keys and values for `cached_tokens` (batch rows x branches x length).

    Activations and logits come on top; they depend on what is asked of a pass.
    """
    cached = 2 * cached_tokens * config.n_layers * config.n_kv_heads * config.head_dim
    return (parameter_count(config) + cached) * dtype.itemsize


def _compare_names(folder: Path, found: dict, wanted: dict, config: PreTrainedConfig) -> None:
    missing, extra = (
        [name for name in one if name not in two] for one, two in ((wanted, found), (found, wanted))
    )
    parts = [f"{len(wanted) - len(missing)} of {len(wanted)} tensors"]
    parts += [f"missing: {_few(missing)}"] if missing else []
    parts += [f"{len(extra)} that the model does not have: {_few(extra)}"] if extra else []
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


def _stored(path: Path, entry: dict[str, Any]) -> Stored:
    begin, end = entry["data_offsets"][:2]
    return Stored(path, str(entry["dtype"]), tuple(entry["shape"]), end - begin)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    _refuse_pointer(path)
    return _parse(path, path.read_bytes())


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise CheckpointError(f"{path}: invalid json: {error}") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path}: expected a json object, found {type(parsed).__name__}")
    return parsed


def _refuse_pointer(path: Path) -> None:
    """A Git LFS pointer is what git clones in place of a large file: a few lines of text naming it."""
    with path.open("rb") as file:
        if file.read(len(POINTER)) == POINTER:
            raise CheckpointError(
                f"{path} is a Git LFS pointer, not the file: run `git lfs pull` in its folder"
            )


def _refuse(names: list[str], words: str) -> None:
    if names:
        raise CheckpointError(f"{words} {_few(names)}")


def _few(names: Iterable[str], most: int = 4) -> str:
    names = sorted(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _state(config: PreTrainedConfig, names: Iterable[str]) -> str:
    return ", ".join(f"{name}={getattr(config, name)}" for name in names if hasattr(config, name))


def _with_variant(name: str, variant: str | None) -> str:
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.{variant}.{suffix}" if variant else name
