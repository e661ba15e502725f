"""The LLaDA transformer: bidirectional, no time input, one head over text and image tokens alike.

Nie et al. 2025 (LLaDA), Lumina-DiMOO 2025. Tensor names follow the hosted checkpoint. Where we differ from the
released code: padding has a real key mask or is not computed at all, logits are computed only for the rows and
columns asked for, the last layer asks only for those rows, keys are cached after RoPE, and no state lives on the model.

Shapes: B batch, L sequence, R computed rows, D width, H query heads, G key/value heads, d head width, V vocabulary.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel, initialization
from transformers.utils import ModelOutput

from dimoo import ops
from dimoo.cache.store import KVStore
from dimoo.model.attend import Attend
from dimoo.model.config import LLaDAConfig
from dimoo.model.load import CheckedLoading
from dimoo.packing import Packing


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, self.weight, self.eps)


class Block(nn.Module):
    """One pre-norm layer: attention, then SwiGLU."""

    def __init__(self, config: LLaDAConfig, index: int):
        super().__init__()
        self.index, self.head_dim = index, config.head_dim
        width, kv_width, bias = config.d_model, config.n_kv_heads * config.head_dim, config.include_qkv_bias
        self.attn_norm = RMSNorm(width, config.rms_norm_eps)
        self.q_proj = nn.Linear(width, width, bias=bias)
        self.k_proj = nn.Linear(width, kv_width, bias=bias)
        self.v_proj = nn.Linear(width, kv_width, bias=bias)
        self.attn_out = nn.Linear(width, width, bias=False)
        if config.qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.ff_norm = RMSNorm(width, config.rms_norm_eps)
        self.ff_proj = nn.Linear(width, config.mlp_hidden_size, bias=False)
        self.up_proj = nn.Linear(width, config.mlp_hidden_size, bias=False)
        self.ff_out = nn.Linear(config.mlp_hidden_size, width, bias=False)
        self.attn_out.writes_stream = self.ff_out.writes_stream = True
        self.normalise_heads = config.qk_norm

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)             # (B, R, H*d) -> (B, H, R, d)

    def forward(
        self, x: Tensor, turn: ops.Turn, attend: Attend, needed: Tensor | None = None, turn_q: ops.Turn | None = None
    ) -> Tensor:
        """x (B, R, D) -> (B, R, D), or only the rows `needed` (B, M) -> (B, M, D); keys and values are of all rows."""
        h = self.attn_norm(x)
        k, v = self.heads(self.k_proj(h)), self.heads(self.v_proj(h))           # (B, G, R, d)
        if needed is not None:
            x, h = take(x, needed, attend), take(h, needed, attend)             # (B, M, D)
        q = self.heads(self.q_proj(h))                                          # (B, H, R or M, d)
        if self.normalise_heads:
            q, k = self.q_norm(q), self.k_norm(k)
        mixed = attend(self.index, q, k, v, turn, turn_q)                       # (B, H, R or M, d)
        return self.finish(x, mixed)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """All behind attention: x (B, R, D), mixed (B, H, R, d) -> (B, R, D)."""
        x = x + self.attn_out(mixed.transpose(1, 2).flatten(2))
        h = self.ff_norm(x)
        return x + self.ff_out(ops.swiglu(self.ff_proj(h), self.up_proj(h)))


def take(x: Tensor, rows: Tensor, attend: Attend) -> Tensor:
    """Hidden states (B, R, D), or packed ones, at `rows` (B, M) of each sequence."""
    return attend.packing.take(x, rows) if attend.packed else ops.gather_rows(x, rows)


class LLaDATrunk(nn.Module):
    """Embedding, blocks, final norm and head under the names `transformer.*` of the hosted checkpoint."""

    def __init__(self, config: LLaDAConfig):
        super().__init__()
        parts = {
            "wte": nn.Embedding(config.embedding_rows, config.d_model),
            "blocks": nn.ModuleList(Block(config, i) for i in range(config.n_layers)),
            "ln_f": RMSNorm(config.d_model, config.rms_norm_eps),
        }
        if not config.weight_tying:
            parts["ff_out"] = nn.Linear(config.d_model, config.embedding_rows, bias=False)
        self.transformer = nn.ModuleDict(parts)


@dataclass
class DenoiserOutput(ModelOutput):
    """logits (B, rows, columns) in the model's dtype."""

    logits: Tensor | None = None


class LLaDAForMultiModalGeneration(CheckedLoading, PreTrainedModel):
    """The denoiser: token ids in, logits of every asked position out, same position (no shift)."""

    config_class = LLaDAConfig
    base_model_prefix = "model"
    _no_split_modules = ["Block"]
    _supports_sdpa = True
    _tied_weights_keys = {}
    """Nothing to tie after loading: with `weight_tying` there is no head, the embedding serves as one."""
    supports_gradient_checkpointing = True
    attention_kind = "full"
    can_cache = True
    """Keys and values of some rows may be kept while others are computed."""

    def __init__(self, config: LLaDAConfig):
        super().__init__(config)
        self.model = LLaDATrunk(config)
        self.gradient_checkpointing = False
        self.post_init()

    @property
    def parts(self) -> nn.ModuleDict:
        return self.model.transformer

    @property
    def head(self) -> nn.Module:
        """The module whose weight (V, D) is the output matrix: its own, or the embedding when tied."""
        return self.parts.wte if self.config.weight_tying else self.parts.ff_out

    def _init_weights(self, module: nn.Module) -> None:
        """Normal(0, initializer_range); times 1/sqrt(2 n_layers) where a block writes its result (GPT-2)."""
        super()._init_weights(module)
        if getattr(module, "writes_stream", False):
            std = self.config.initializer_range / math.sqrt(2 * self.config.n_layers)
            initialization.normal_(module.weight, std=std)

    def get_input_embeddings(self) -> nn.Module:
        return self.parts.wte

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.parts.wte = value

    def get_output_embeddings(self) -> nn.Module | None:
        return None if self.config.weight_tying else self.parts.ff_out

    def hidden(
        self,
        input_ids: Tensor,
        key_mask: Tensor | None,
        kv: KVStore | None,
        rows: Tensor | None,
        needed: Tensor | None = None,
        packing: Packing | None = None,
        soft: Tensor | None = None,
    ) -> Tensor:
        """Final normed states (B, R, D) of `rows`, or of all rows; (B, M, D) of those `needed` (B, M) among them."""
        attend = Attend(*input_ids.shape, key_mask, kv, rows, packing)
        ids, turn = input_ids, self.turn(input_ids, rows)
        if rows is not None:
            ids, soft = input_ids.gather(1, rows), soft if soft is None else ops.gather_rows(soft, rows)  # (B, R)
        elif packing is not None:
            ids, soft = packing.pack(input_ids), soft if soft is None else packing.pack(soft)
            turn = self.turn(input_ids, packing.index[None] % packing.width)
        x = self.parts.wte(ids)                                                 # (B, R, D)
        if soft is not None:
            x = x + soft.to(x.dtype)

        *blocks, last = self.parts.blocks
        for block in blocks:
            x = self.run(block, x, turn, attend)                                # (B, R, D)
        if needed is None:
            return self.parts.ln_f(self.run(last, x, turn, attend))
        turn_q = self.turn(input_ids, needed if rows is None else rows.gather(1, needed))
        return self.parts.ln_f(self.run(last, x, turn, attend, needed, turn_q))

    def compile_blocks(self, **options) -> None:
        """Compile what every layer does behind attention with `torch.compile`: once, for all layers and any length.

        The rest of a layer knows its number and the cache, so it would be compiled once a layer. An option: whether
        it helps has to be measured. `options` go to `torch.compile`.
        """
        for block in self.parts.blocks:
            block.finish = torch.compile(block.finish, **{"dynamic": True} | options)

    def turn(self, input_ids: Tensor, positions: Tensor | None) -> ops.Turn:
        """Rotary tables of `positions` (B, R), or of the whole length."""
        tables = ops.rope_table(input_ids.shape[1], self.config.head_dim, self.config.rope_theta, input_ids.device)
        return tables if positions is None else tuple(table[positions][:, None] for table in tables)

    def run(self, block: Block, *given) -> Tensor:
        if self.gradient_checkpointing and self.training:
            return self._gradient_checkpointing_func(block, *given)
        return block(*given)

    def embed(self, shares: Tensor, columns: slice | None = None) -> Tensor:
        """Mean embeddings (..., D) under shares (..., columns) of the vocabulary."""
        with fetched(self.parts.wte):
            weight = self.parts.wte.weight if columns is None else self.parts.wte.weight[columns]
            return shares.to(weight.dtype) @ weight

    def logits(self, hidden: Tensor, columns: slice | None = None) -> Tensor:
        """hidden (B, R, D) -> (B, R, columns of the vocabulary)."""
        with fetched(self.head):
            weight = self.head.weight if columns is None else self.head.weight[columns]
            return nn.functional.linear(hidden, weight)

    def forward(
        self,
        input_ids: Tensor,
        key_mask: Tensor | None = None,
        kv: KVStore | None = None,
        rows: Tensor | None = None,
        logit_rows: Tensor | None = None,
        columns: slice | None = None,
        packing: Packing | None = None,
        soft: Tensor | None = None,
    ) -> DenoiserOutput:
        """One pass.

        Args:
            input_ids: (B, L) token ids; always the whole sequence, also for a partial pass.
            key_mask: (B, L) bool, False on padding; None when there is none.
            kv: store to read and write; a pass with `rows` needs one filled by an earlier full pass.
            rows: (B, R) positions to compute (None: all); their keys and values replace the stored ones.
            logit_rows: (B, M) which computed rows get logits, as indices into the computed rows (None: all).
            columns: vocabulary slice of the logits (None: all).
            packing: what `key_mask` says, in a form that lets the padding go uncomputed; logits there mean nothing.
            soft: (B, L, D) added to the embeddings, see `dimoo.sampling.smoothing`.
        """
        if rows is not None and (kv is None or kv.empty):
            raise ValueError("a partial pass (rows=...) needs a KVStore filled by a full pass first")
        x = self.hidden(input_ids, key_mask, kv, rows, logit_rows, packing, soft)   # (B, R or M, D)
        if packing is not None and rows is None and logit_rows is None:
            x = packing.unpack(x)                                               # (B, L, D)
        return DenoiserOutput(logits=self.logits(x, columns))


def fetched(module: nn.Module):
    """A context in which the weights of an offloaded module are at hand."""
    if not hasattr(module, "_hf_hook"):
        return nullcontext()
    from accelerate.utils import align_module_device  # has put the hook there

    return align_module_device(module)


AutoConfig.register("llada", LLaDAConfig, exist_ok=True)
AutoModel.register(LLaDAConfig, LLaDAForMultiModalGeneration, exist_ok=True)
