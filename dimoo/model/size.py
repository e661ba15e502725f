"""How large a model is, without a weight of it."""

from __future__ import annotations

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig


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
