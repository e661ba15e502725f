"""Plain-torch reference of every fused operation, and the one place that chooses fused or plain.

Shapes: B rows of a batch, L sequence, R computed query rows, H query heads, G key/value heads, d head width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) * weight over the last axis; the mean square is taken in float32 (Zhang & Sennrich 2019)."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up (Shazeer 2020)."""
    return F.silu(gate) * up


def rope_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Rotary angles (Su et al. 2021) in float32.

    positions (B, R) or (R,) of token indices -> cos, sin of shape (..., 1, R, head_dim), ready for (B, H, R, d).
    """
    inverse = 1.0 / theta ** (torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim)
    angles = positions.float().unsqueeze(-1) * inverse                      # (..., R, d/2)
    angles = torch.cat([angles, angles], dim=-1).unsqueeze(-3)              # (..., 1, R, d)
    return angles.cos(), angles.sin()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of each head of x (B, H, R, d), in float32 as the hosted checkpoint does."""
    wide = x.float()
    left, right = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat([-right, left], dim=-1) * sin).to(x.dtype)


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
    index = rows.reshape(*rows.shape, *(1,) * (x.dim() - 2)).expand(*rows.shape, *x.shape[2:])
    return x.gather(1, index)


def scatter_rows(target: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Write values (B, R, ...) into target (B, L, ...) at rows (B, R), in place; duplicates must agree."""
    index = rows.reshape(*rows.shape, *(1,) * (target.dim() - 2)).expand(*rows.shape, *target.shape[2:])
    return target.scatter_(1, index, values)
