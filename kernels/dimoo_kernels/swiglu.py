"""silu(gate) * up in one pass. Twin: `dimoo.ops.swiglu`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dimoo_kernels.launch import launch

BLOCK = 1024


@triton.jit
def kernel(gate, up, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    g = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    silu = (g * tl.sigmoid(g)).to(gate.dtype.element_ty).to(tl.float32)     # rounded before the product, as the twin
    u = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (silu * u).to(out.dtype.element_ty), mask=inside)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up (..., F) -> (..., F)."""
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    launch("swiglu", kernel, (triton.cdiv(gate.numel(), BLOCK),), gate.device, gate, up, out, gate.numel(), BLOCK=BLOCK)
    return out
