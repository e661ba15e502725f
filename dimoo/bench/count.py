"""Counting passes, positions and model FLOPs, and a denoiser that does nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor


def linear_flops(config) -> tuple[int, int]:
    """(of keys and values, of all else) per token and layer; a multiply and an add count as two."""
    width, kv = config.d_model, config.n_kv_heads * config.head_dim
    return 4 * width * kv, 4 * width * width + 6 * width * config.mlp_hidden_size


class Counted:
    """A denoiser that adds up what is asked of it: `forwards` (sequences), their `positions`, how many of these were
    `computed`, and `flops` (0 for a toy, which has no layers)."""

    def __init__(self, denoiser):
        self.denoiser, self.forwards, self.positions, self.computed, self.flops = denoiser, 0, 0, 0, 0

    def __getattr__(self, name: str):
        return getattr(self.denoiser, name)

    def __call__(self, input_ids: Tensor, **given):
        self.add(*input_ids.shape, **given)
        return self.denoiser(input_ids, **given)

    def add(self, batch: int, length: int, rows=None, logit_rows=None, columns=None, packing=None, **_) -> None:
        config = self.denoiser.config
        lengths = packing.lengths if packing is not None else (length,) * batch
        computed = lengths if rows is None else (rows.shape[1],) * batch
        asked = computed if logit_rows is None else (logit_rows.shape[1],) * batch
        self.forwards += batch
        self.positions += sum(lengths)
        self.computed += sum(computed)
        if not hasattr(config, "n_layers"):
            return
        columns = config.embedding_rows if columns is None else columns.stop - columns.start
        kv, rest = linear_flops(config)
        for keys, queries, needed in zip(lengths, computed, asked, strict=True):
            per_query = rest + 4 * keys * config.d_model                        # and two products with all keys
            self.flops += config.n_layers * queries * kv + (config.n_layers - 1) * queries * per_query
            self.flops += needed * (per_query + 2 * config.d_model * columns)


class Idle:
    """Answers at once, at random: to count a whole schedule without computing it."""

    can_cache = True

    def __init__(self, model):
        self.config, self.device, self.dtype = model.config, model.device, model.dtype

    def __call__(self, input_ids: Tensor, rows=None, logit_rows=None, columns=None, **_) -> SimpleNamespace:
        shape = next(x.shape for x in (logit_rows, rows, input_ids) if x is not None)
        columns = self.config.embedding_rows if columns is None else columns.stop - columns.start
        one = torch.rand(*shape, 1, device=input_ids.device, dtype=self.dtype)  # the same for all columns: no memory
        return SimpleNamespace(logits=one.expand(*shape, columns))
