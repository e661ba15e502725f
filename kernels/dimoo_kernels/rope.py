"""Rotate q and k, and write k and v into the rows of a cache. Twins in `dimoo.ops`: `rope_into`, `apply_rope`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dimoo_kernels.launch import launch, power_of_two


@triton.jit
def turned(x, cos, sin, head, column, half, inside):
    """Rotate the heads of one token: x points at its first head; the last axis is contiguous."""
    left = tl.load(x + head + column, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(x + head + column + half, mask=inside, other=0.0).to(tl.float32)
    return left * cos - right * sin, right * cos + left * sin


@triton.jit
def kernel(
    q, k, v, cos, sin, q_out, keys, values, target,
    R, H, G, half,
    q_b, q_h, q_r, k_b, k_h, k_r, v_b, v_h, v_r, turn_b, turn_r,
    HAS_Q: tl.constexpr, HAS_V: tl.constexpr, HAS_TARGET: tl.constexpr,
    HB: tl.constexpr, GB: tl.constexpr, DB: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)                           # one program a token, all its heads
    batch, row = token // R, token % R
    column = tl.arange(0, DB)[None, :]
    inside = column < half
    c = tl.load(cos + batch * turn_b + row * turn_r + column, mask=inside, other=0.0)
    s = tl.load(sin + batch * turn_b + row * turn_r + column, mask=inside, other=0.0)
    d = 2 * half

    if HAS_Q:
        head = tl.arange(0, HB)[:, None]
        there = (head < H) & inside
        left, right = turned(q + batch * q_b + row * q_r, c, s, head * q_h, column, half, there)
        out = q_out + token * H * d + head * d + column
        tl.store(out, left.to(q_out.dtype.element_ty), mask=there)
        tl.store(out + half, right.to(q_out.dtype.element_ty), mask=there)

    place = token
    if HAS_TARGET:
        place = tl.load(target + token)
    head = tl.arange(0, GB)[:, None]
    there = (head < G) & inside
    left, right = turned(k + batch * k_b + row * k_r, c, s, head * k_h, column, half, there)
    out = place * G * d + head * d + column
    tl.store(keys + out, left.to(keys.dtype.element_ty), mask=there)
    tl.store(keys + out + half, right.to(keys.dtype.element_ty), mask=there)
    if HAS_V:
        source = v + batch * v_b + row * v_r + head * v_h + column
        tl.store(values + out, tl.load(source, mask=there, other=0.0), mask=there)
        tl.store(values + out + half, tl.load(source + half, mask=there, other=0.0), mask=there)


def rope_into(
    q: Tensor | None, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor,
    target: Tensor | None,
) -> Tensor | None:  # fmt: skip
    """As the twin: q (B, H, R, d), k and v (B, G, R, d), cos and sin (..., 1, R, d), keys and values (B', L, G, d)."""
    return rotate("rope_into", q, k, v, cos, sin, keys, values, target)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, H, R, d), cos and sin (..., 1, R, d) -> (B, H, R, d), of which (B, R, H, d) is contiguous."""
    batch, heads, rows, width = x.shape
    out = torch.empty(batch, rows, heads, width, dtype=x.dtype, device=x.device)
    rotate("apply_rope", None, x, None, cos, sin, out, None, None)
    return out.transpose(1, 2)


def rotate(
    name: str, q: Tensor | None, k: Tensor, v: Tensor | None, cos: Tensor, sin: Tensor, keys: Tensor,
    values: Tensor | None, target: Tensor | None,
) -> Tensor | None:  # fmt: skip
    """Launch; what is None is left out, and stands for k or keys where the kernel wants an address."""
    batch, groups, rows, width = k.shape
    cos, sin = (table.reshape(-1, rows, width) for table in (cos, sin))
    heads = 0 if q is None else q.shape[1]
    q, k, v, cos, sin = (x if x is None or x.stride(-1) == 1 else x.contiguous() for x in (q, k, v, cos, sin))
    out = None if q is None else torch.empty(batch, rows, heads, width, dtype=q.dtype, device=q.device)
    turn = (0 if len(cos) == 1 else cos.stride(0), cos.stride(1))
    first, second = (k if x is None else x for x in (q, v))
    strides = [x.stride(axis) for x in (first, k, second) for axis in (0, 1, 2)]
    given = (
        first, k, second, cos, sin, *(k if x is None else x for x in (out, keys, values, target)),
        rows, heads, groups, width // 2, *strides, *turn,
    )  # fmt: skip
    blocks = {
        "HB": power_of_two(max(heads, 1)), "GB": power_of_two(groups), "DB": power_of_two(width // 2),
        "HAS_Q": q is not None, "HAS_V": v is not None, "HAS_TARGET": target is not None,
    }  # fmt: skip
    launch(name, kernel, (batch * rows,), k.device, *given, **blocks)
    return None if out is None else out.transpose(1, 2)
