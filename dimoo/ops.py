"""Plain-torch reference of every fused operation, and the one place that chooses fused or plain.

Shapes: B rows of a batch, L sequence, R computed query rows, H query heads, G key/value heads, d head width.
The environment variable DIMOO_KERNELS chooses: `auto` (default: fused on a CUDA device when triton is there), `off`,
or `on` (always; on a CPU that needs Triton's interpreter, TRITON_INTERPRET=1).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from dimoo.stream import uniform

CHOICES = ("auto", "on", "off")
Turn = tuple[Tensor, Tensor]
"""Cosines and sines of rotary angles, each (..., 1, R, d)."""


def kernels(*inputs: Tensor) -> ModuleType | None:
    """The fused kernels when they serve these inputs, else None. Kernels without a backward skip what needs one."""
    choice = os.environ.get("DIMOO_KERNELS", "auto")
    if choice not in CHOICES:
        raise ValueError(f"DIMOO_KERNELS={choice!r}; allowed: {', '.join(CHOICES)}")
    if choice == "off" or (choice == "auto" and not inputs[0].is_cuda) or torch.compiler.is_compiling():
        return None
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return None
    return kernel_module()


@lru_cache(maxsize=1)
def kernel_module() -> ModuleType | None:
    """`dimoo_kernels`, None where triton is not installed."""
    if find_spec("triton") is None:
        return None
    import dimoo_kernels

    return dimoo_kernels


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) * weight over the last axis; the mean square is taken in float32 (Zhang & Sennrich 2019)."""
    if fused := kernels(x, weight):
        return fused.rms_norm(x, weight, eps)
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up (Shazeer 2020)."""
    if fused := kernels(gate, up):
        return fused.swiglu(gate, up)
    return F.silu(gate) * up


def rope_tables(positions: Tensor, head_dim: int, theta: float) -> Turn:
    """Rotary angles (Su et al. 2021) in float32.

    positions (B, R) or (R,) of token indices -> cos, sin of shape (..., 1, R, head_dim), ready for (B, H, R, d).
    """
    inverse = 1.0 / theta ** (torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim)
    angles = positions.float().unsqueeze(-1) * inverse                      # (..., R, d/2)
    angles = torch.cat([angles, angles], dim=-1).unsqueeze(-3)              # (..., 1, R, d)
    return angles.cos(), angles.sin()


def rope_table(length: int, head_dim: int, theta: float, device: torch.device) -> Turn:
    """Cosines and sines (length, head_dim) of the first positions; computed once and kept, they are constants."""
    cos, sin = _rope_table(-(-length // 256) * 256, head_dim, theta, device)
    return cos[:length], sin[:length]


@lru_cache(maxsize=16)
def _rope_table(length: int, head_dim: int, theta: float, device: torch.device) -> Turn:
    with torch.inference_mode(False), torch.no_grad():                      # so that training may use them as well
        cos, sin = rope_tables(torch.arange(length, device=device), head_dim, theta)
        return cos[0], sin[0]


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of each head of x (B, H, R, d), in float32 as the hosted checkpoint does."""
    if fused := kernels(x):
        return fused.apply_rope(x, cos, sin)
    wide = x.float()
    left, right = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat([-right, left], dim=-1) * sin).to(x.dtype)


def rope_into(
    q: Tensor | None, k: Tensor, v: Tensor, turn: Turn, keys: Tensor, values: Tensor, target: Tensor | None
) -> Tensor | None:
    """Rotate q and k, and write k and v into a cache.

    q (B, H, R, d) or None; k, v (B, G, R, d); keys, values (B', L, G, d), written in place at `target` (B*R,), places
    in the flattened (B'*L), None for all in order. Duplicates must agree. Returns the rotated q.
    """
    if fused := kernels(k):
        return fused.rope_into(q, k, v, *turn, keys, values, target)
    fresh = ((keys, apply_rope(k, *turn)), (values, v))
    for store, new in fresh:
        flat, new = store.view(-1, *store.shape[2:]), new.transpose(1, 2).flatten(0, 1)     # (B'*L, G, d), (B*R, G, d)
        if target is None:
            flat.copy_(new)
        else:
            flat[target] = new
    return None if q is None else apply_rope(q, *turn)


SHORT = 512
"""Keys up to which the written-out attention is the faster one to train on a CPU (3x at 100)."""


def attention(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
    """Full bidirectional attention: q (B, H, R, d) over k, v (B, G, L, d) -> (B, H, R, d).

    key_mask (B, L) bool, True where a key is a real token; None when every key is (nothing is masked then,
    and the fast kernels apply). Padding is never attended to.
    """
    mask = None if key_mask is None else key_mask[:, None, None, :]
    if q.device.type == "cpu" and q.requires_grad and k.shape[2] <= SHORT:
        return written_out_attention(q, k, v, mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


def written_out_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(d)) v, the same as the fused call."""
    if q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1) @ v


def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x (B, L, ...), rows (B, R) -> (B, R, ...)."""
    if x.dim() > 2 and (fused := kernels(x)):
        return fused.gather_rows(x, rows)
    return x[_batch(rows), rows]


def scatter_rows(target: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Write values (B, R, ...) into target (B, L, ...) at rows (B, R), in place; duplicates must agree."""
    if target.dim() > 2 and (fused := kernels(target)):
        return fused.scatter_rows(target, rows, values)
    target[_batch(rows), rows] = values
    return target


@lru_cache(maxsize=256)
def index(members: tuple[int, ...], device: torch.device) -> Tensor:
    """Numbers as a tensor; kept, because indexing with a list copies it to the device anew and waits for that."""
    with torch.inference_mode(False):
        return torch.tensor(members, device=device)


def _batch(rows: Tensor) -> Tensor:
    return torch.arange(len(rows), device=rows.device)[:, None]


def combine(logits: Tensor, weights: Sequence[float]) -> Tensor:
    """Branch-major logits (n*B, M, K) -> float32 (B, M, K): sum of weight * branch, added up in float32."""
    parts = logits.float().chunk(len(weights))
    total = parts[0] * weights[0]
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total = total + part * weight
    return total


def without(z: Tensor, column: int | None) -> Tensor:
    """z with -inf in one column; the index is made on the device, so there is no copy to wait for."""
    return z if column is None else z.index_fill(-1, torch.full((1,), column, device=z.device), -torch.inf)


def guided_sample(
    logits: Tensor, weights: Sequence[float], temperature: float, keys: Tensor, forbidden: int | None
) -> tuple[Tensor, Tensor]:
    """Combine the branches, draw a token at each row, and say how probable it is.

    logits (n*B, M, K) branch-major, n weights, keys (B, M) int64 from `RandomStream.at`; column `forbidden` is never
    drawn. Returns ids (B, M) = argmax(z / temperature + Gumbel noise), of z alone when the temperature is 0, and
    their log-probability (B, M) under softmax(z), float32. Fused, one pass over the columns writes nothing else.
    """
    if fused := kernels(logits):
        return fused.guided_sample(logits, weights, temperature, keys, forbidden)
    z = without(combine(logits, weights), forbidden)
    score = z if temperature == 0 else z / temperature + gumbel(uniform(keys, z.shape[-1]))
    ids = score.argmax(-1)
    return ids, z.log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)


def gumbel(u: Tensor) -> Tensor:
    """Uniform in (0, 1) -> standard Gumbel: -log(-log(u))."""
    return -torch.log(-torch.log(u))


def chosen_log_prob(logits: Tensor, ids: Tensor) -> Tensor:
    """log softmax(logits)[ids] in float32: logits (..., K), ids (...) -> (...); the policy term of RL, with backward.

    Fused, neither the softmax nor a float32 copy of the logits is written: the backward recomputes it.
    """
    with torch.no_grad():
        fused = kernels(logits)                                             # has a backward, so gradients do not matter
    if fused:
        return fused.chosen_log_prob(logits, ids)
    return logits.float().log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
