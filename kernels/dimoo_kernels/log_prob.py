"""log softmax(logits)[ids] with its backward, for RL. Twin: `dimoo.ops.chosen_log_prob`.

The forward keeps one number a row, the log of the sum; the backward writes the gradient in one more pass:
d/dlogits = g (onehot(id) - softmax).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dimoo_kernels.launch import launch, power_of_two, rows_of

BLOCK = 2048


@triton.jit
def forward_kernel(logits, ids, log_p, log_sum, stride, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top, total = float("-inf"), 0.0
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < width
        z = tl.load(logits + row * stride + column, mask=inside, other=0.0).to(tl.float32)
        z = tl.where(inside, z, float("-inf"))
        peak = tl.maximum(top, tl.max(z, axis=0))
        safe = tl.where(peak == float("-inf"), 0.0, peak)
        total = total * tl.exp(top - safe) + tl.sum(tl.exp(z - safe), axis=0)
        top = peak
    chosen = tl.load(logits + row * stride + tl.load(ids + row)).to(tl.float32)
    tl.store(log_sum + row, top + tl.log(total))
    tl.store(log_p + row, chosen - top - tl.log(total))


@triton.jit
def backward_kernel(logits, ids, log_sum, gradient, out, stride, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chosen, g, total = tl.load(ids + row), tl.load(gradient + row), tl.load(log_sum + row)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < width
        z = tl.load(logits + row * stride + column, mask=inside, other=0.0).to(tl.float32)
        slope = g * (tl.where(column == chosen, 1.0, 0.0) - tl.exp(z - total))
        tl.store(out + row * width + column, slope.to(out.dtype.element_ty), mask=inside)


class ChosenLogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Tensor, ids: Tensor) -> Tensor:
        flat, rows, width = rows_of(logits)
        ids = ids.reshape(-1).contiguous()
        log_p, log_sum = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
        block = min(BLOCK, power_of_two(width))
        given = (flat, ids, log_p, log_sum, flat.stride(0), width)
        launch("chosen_log_prob", forward_kernel, (rows,), logits.device, *given, BLOCK=block)
        ctx.save_for_backward(flat, ids, log_sum)
        ctx.shape = logits.shape
        return log_p.view(ctx.shape[:-1])

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        flat, ids, log_sum = ctx.saved_tensors
        rows, width = flat.shape
        out = torch.empty(rows, width, dtype=flat.dtype, device=flat.device)
        given = (flat, ids, log_sum, gradient.reshape(-1).float().contiguous(), out, flat.stride(0), width)
        block = min(BLOCK, power_of_two(width))
        launch("chosen_log_prob_backward", backward_kernel, (rows,), flat.device, *given, BLOCK=block)
        return out.view(ctx.shape), None


def chosen_log_prob(logits: Tensor, ids: Tensor) -> Tensor:
    """logits (..., K), ids (...) int64 -> (...) float32, differentiable in the logits."""
    return ChosenLogProb.apply(logits, ids)
