"""Exponential moving average of a model's weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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

    @contextmanager
    def swapped_into(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights inside the block, with its own again behind it."""
        own = {name: p.detach().clone() for name, p in model.named_parameters()}
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(self.shadow[name])
        try:
            yield
        finally:
            with torch.no_grad():
                for name, p in model.named_parameters():
                    p.copy_(own[name])
