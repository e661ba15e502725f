"""How much memory a model takes, from its config alone: nothing is loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download

from dimoo.checkpoint import read_defaults, read_ratio
from dimoo.locate import EMBEDDED, HOSTED, locate
from dimoo.model import LLaDAConfig, memory_estimate, parameter_count
from dimoo.model.load import read_config
from dimoo.settings import Defaults
from dimoo.vocab import CheckpointError

PROMPT = 128
"""Tokens allowed for the words of a prompt."""
REST = 3 * 2**29
"""Bytes on top of weights and keys and values: activations, logits, image tokenizer, torch itself (1.5 GiB)."""
HOSTED_RATIO = 16


@dataclass(frozen=True)
class Model:
    """What the estimate needs of a checkpoint. `ratio`: pixels a code along one side."""

    name: str
    config: LLaDAConfig
    defaults: Defaults
    ratio: int

    @property
    def parameters(self) -> str:
        """Their number, for people."""
        count = parameter_count(self.config)
        unit, word = next((u, w) for u, w in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")) if count >= u)
        return f"{count / unit:.2f} {word} parameters"

    def cached_tokens(self) -> int:
        """Tokens with keys and values when a picture of the default size is drawn with guidance and a cache."""
        height, width = self.defaults.height // self.ratio, self.defaults.width // self.ratio
        return 2 * (PROMPT + height * (width + 1))

    def estimate(self, dtype: torch.dtype) -> tuple[int, int]:
        """Bytes of (weights, keys and values)."""
        weights = memory_estimate(self.config, dtype)
        return weights, memory_estimate(self.config, dtype, self.cached_tokens()) - weights


def read_model(name: str) -> Model:
    """A model by name. Of a hub id only the config is fetched; the hosted 8B is known without.

    Raises CheckpointError when there is no such model, or its config is incomplete.
    """
    if name == HOSTED and not Path(name).is_dir():
        return Model(name, LLaDAConfig(), Defaults(), HOSTED_RATIO)
    if name in EMBEDDED or Path(name).is_dir() or "/" not in name:
        folder = locate(name)
        return Model(name, read_config(folder, LLaDAConfig), read_defaults(folder), read_ratio(folder))
    try:
        folder = Path(hf_hub_download(name, "config.json")).parent
    except Exception as error:  # as in `locate`: the hub's own errors are many
        raise CheckpointError(f"could not get the config of {name!r} from the hub: {error}") from error
    return Model(name, read_config(folder, LLaDAConfig), Defaults(), HOSTED_RATIO)


def describe(name: str) -> dict[str, Any]:
    """What a checkpoint says about itself, for people."""
    model = read_model(name)
    shape = ("d_model", "n_layers", "n_heads", "n_kv_heads", "mlp_hidden_size", "vocab_size", "codebook_size")
    return {
        "size": model.parameters,
        **{field: getattr(model.config, field) for field in shape},
        "pixels_per_code": model.ratio,
        **{f"default {field}": value for field, value in asdict(model.defaults).items()},
    }
