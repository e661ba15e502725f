"""LoRA adapters (Hu et al. 2021), as fine-tuning and alignment use them."""

from __future__ import annotations

from torch import nn

LAYERS = r".*blocks\.\d+\.(q_proj|k_proj|v_proj|attn_out|ff_proj|up_proj|ff_out)"
"""Linear layers that get adapters: all of the blocks, not the head."""


def adapt(network: nn.Module, rank: int, empty: bool = False):
    """Put LoRA adapters (Hu et al. 2021) into the layers of the network, in place; returns peft's handle on them.
    `empty`: only their shape, for a network on `meta`."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise ValueError("adapters need peft: pip install 'dimoo[train]'") from None
    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=LAYERS)
    return get_peft_model(network, config, low_cpu_mem_usage=empty)
