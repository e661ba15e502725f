"""RMSNorm: one read and one write a row. Twin: `dimoo.ops.rms_norm`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dimoo_kernels.launch import launch, power_of_two, rows_of, warps


@triton.jit
def kernel(x, weight, out, stride, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    wide = tl.load(x + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / width + eps)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    normed = (wide * scale).to(x.dtype.element_ty).to(tl.float32)   # rounded before the weight, as the twin does
    tl.store(out + row * width + column, (w * normed).to(out.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x (..., D), weight (D,) -> (..., D)."""
    flat, rows, width = rows_of(x)
    out = torch.empty(rows, width, dtype=torch.promote_types(x.dtype, weight.dtype), device=x.device)
    block = power_of_two(width)
    given = (flat, weight, out, flat.stride(0), width, eps)
    launch("rms_norm", kernel, (rows,), x.device, *given, BLOCK=block, num_warps=warps(block))
    return out.view(x.shape)
