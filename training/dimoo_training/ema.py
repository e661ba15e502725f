"""Exponential moving average of a model's weights."""

from __future__ import annotations

import torch
from torch import nn


class EMA:
    """`shadow[name]` follows each parameter with rate 1 - min(decay, (1 + step) / (10 + step)): fast at first."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        rate = 1 - min(self.decay, (1 + step) / (10 + step))
        parameters = dict(model.named_parameters())
        torch._foreach_lerp_([self.shadow[n] for n in parameters], [p.detach() for p in parameters.values()], rate)
