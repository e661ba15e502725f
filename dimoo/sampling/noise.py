"""Where the sampler's Gumbel noise comes from."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from dimoo.ops import gumbel
from dimoo.stream import RANK, TOKEN, RandomStream


class Noise(Protocol):
    """Gumbel noise for rows (B, M) of a canvas at a step."""

    dtype: torch.dtype
    """Precision in which the whole sampling step is carried out."""

    def token(self, stream: RandomStream, step: int, rows: Tensor, count: int) -> Tensor: ...  # (B, M, count)

    def rank(self, stream: RandomStream, step: int, rows: Tensor) -> Tensor: ...  # (B, M)


class GumbelNoise:
    """Exact float32 Gumbel noise: -log(-log(u))."""

    dtype = torch.float32

    def token(self, stream: RandomStream, step: int, rows: Tensor, count: int) -> Tensor:
        return self.gumbel(stream.uniform(TOKEN, step, rows, count))

    def rank(self, stream: RandomStream, step: int, rows: Tensor) -> Tensor:
        return self.gumbel(stream.uniform(RANK, step, rows)).squeeze(-1)

    @staticmethod
    def gumbel(uniform: Tensor) -> Tensor:
        return gumbel(uniform)


class LowPrecisionNoise(GumbelNoise):
    """The published sampler's noise: bfloat16 uniforms on a grid of 1/256, hence Gumbel noise within [-3.83, 5.53].

    It truncates the tail: hardly anything more than 5 nats below the top logit is ever drawn. With it, logits and
    confidences are rounded to bfloat16 too, as in the released code. For comparison with it; not a better sampler.
    """

    dtype = torch.bfloat16

    @staticmethod
    def gumbel(uniform: Tensor) -> Tensor:
        coarse = (torch.floor(uniform * 256) / 256).clamp_min(1e-20).to(torch.bfloat16)
        return -torch.log(-torch.log(coarse))


NOISES = {"float32": GumbelNoise, "published-bf16": LowPrecisionNoise}
