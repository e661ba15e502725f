"""The LLaDA configuration: the hosted checkpoint's own field names, plus what our small models add."""

from __future__ import annotations

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

REQUIRED_FIELDS = (
    "d_model", "n_heads", "n_layers", "mlp_hidden_size", "vocab_size", "rope_theta", "rms_norm_eps", "mask_token_id",
)  # fmt: skip
"""Fields a checkpoint must state: each changes the arithmetic, so no default may stand in for it."""

UNSUPPORTED = {
    "activation_type": ("silu", "swiglu"),
    "block_type": ("llama",),
    "layer_norm_type": ("rms",),
    "rope": (True,),
    "alibi": (False,),
    "scale_logits": (False,),
    "input_emb_norm": (False,),
    "attention_layer_norm": (False,),
    "include_bias": (False,),
    "bias_for_layer_norm": (False, None),
}
"""Field -> the values this backbone computes faithfully. Anything else is refused instead of ignored."""


@strict
class LLaDAConfig(PreTrainedConfig):
    """Shape of a LLaDA transformer (LLaDA 8B, 1.5, Lumina-DiMOO, MMaDA and dimoo-tiny).

    Defaults are the hosted Lumina-DiMOO 8B numbers. `qk_norm` (per-head RMSNorm of queries and keys),
    `image_token_offset` and `codebook_size` are ours: the hosted config does not have them.

    Raises:
        ValueError: a field has a value this backbone cannot compute, or heads do not divide the width.
    """

    model_type = "llada"
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_key_value_heads": "n_kv_heads",
        "num_hidden_layers": "n_layers",
        "intermediate_size": "mlp_hidden_size",
        "tie_word_embeddings": "weight_tying",
        "max_position_embeddings": "max_sequence_length",
    }

    d_model: int = 4096
    n_heads: int = 32
    n_kv_heads: int | None = None
    n_layers: int = 32
    mlp_hidden_size: int = 12288
    vocab_size: int = 134548
    embedding_size: int | None = None
    max_sequence_length: int = 4096
    rope_theta: float = 500000.0
    rms_norm_eps: float = 1e-5
    weight_tying: bool = False
    include_qkv_bias: bool = False
    qk_norm: bool = False
    initializer_range: float = 0.02
    mask_token_id: int = 126336
    pad_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    image_token_offset: int | None = None
    codebook_size: int | None = None

    def __post_init__(self, **kwargs):
        self.n_kv_heads = self.n_kv_heads or self.n_heads
        for field, allowed in UNSUPPORTED.items():
            if field in kwargs and kwargs[field] not in allowed:
                raise ValueError(f"config.json: {field}={kwargs[field]!r} is not supported; allowed: {list(allowed)}")
        super().__post_init__(**kwargs)

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    @property
    def embedding_rows(self) -> int:
        """Rows of the embedding and output matrices; the hosted format may pad them beyond `vocab_size`."""
        return self.embedding_size or self.vocab_size

    def validate_architecture(self):
        if self.d_model % self.n_heads:
            raise ValueError(f"config.json: d_model={self.d_model} is not a multiple of n_heads={self.n_heads}")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"config.json: n_heads={self.n_heads} is not a multiple of n_kv_heads={self.n_kv_heads}")
