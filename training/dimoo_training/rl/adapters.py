"""What is trained of a model, and the model as it was at the start."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class Trained:
    """The parameters that are trained, seen as a model by the run's state and its average."""

    def __init__(self, network: nn.Module):
        self.network = network

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, p) for name, p in self.network.named_parameters() if p.requires_grad)

    def state_dict(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.named_parameters()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Raises ValueError when other parameters were trained: the run had another recipe."""
        own = dict(self.named_parameters())
        if own.keys() != state.keys():
            raise ValueError("the saved run trained other parameters (with or without adapters): use its recipe")
        for name, p in own.items():
            p.copy_(state[name])


def frozen_copy(network: nn.Module) -> nn.Module:
    """The model as it is now, never to change."""
    return copy.deepcopy(network).eval().requires_grad_(False)


class WithoutAdapters(nn.Module):
    """The model with its adapters switched off: the model at the start, at no cost in memory."""

    def __init__(self, adapted):
        super().__init__()
        self.__dict__["adapted"] = adapted                 # not a submodule: it belongs to the policy

    @property
    def device(self) -> torch.device:
        return self.adapted.device

    def forward(self, *args, **kwargs):
        with self.adapted.disable_adapter():
            return self.adapted.get_base_model()(*args, **kwargs)


class Adam:
    """AdamW without decay behind one `step`, as `Optimiser` has it."""

    def __init__(self, trained: Trained, lr: float, betas: tuple[float, float] = (0.9, 0.99)):
        self.parameters, self.lr = [p for _, p in trained.named_parameters()], lr
        self.inner = torch.optim.AdamW(self.parameters, lr=lr, betas=betas, weight_decay=0.0)

    def step(self, scale: float = 1.0, clip: float = 1.0) -> float:
        """One update at `lr * scale`; returns the gradient norm before clipping to `clip`."""
        norm = float(whole(nn.utils.clip_grad_norm_(self.parameters, clip)))
        for group in self.inner.param_groups:
            group["lr"] = self.lr * scale
        self.inner.step()
        self.inner.zero_grad(set_to_none=True)
        return norm

    def state_dict(self) -> dict:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict) -> None:
        self.inner.load_state_dict(state)


def whole(x: Tensor) -> Tensor:
    """What is in shards, put together."""
    return x.full_tensor() if isinstance(x, DTensor) else x


class PartNorms:
    """Gradient norm of each part of the loss: what a part adds to the gradients that are already there."""

    def __init__(self, parameters: list[nn.Parameter]):
        self.parameters = parameters
        self.sums: dict[str, list[Tensor]] = {}

    def before(self) -> list[Tensor | None]:
        return [None if p.grad is None else p.grad.clone() for p in self.parameters]

    def hear(self, part: str, before: list[Tensor | None]) -> None:
        """Gradients of one micro-batch of a part; those of a part add up before their norm is taken."""
        total = self.sums.setdefault(part, [torch.zeros_like(p) for p in self.parameters])
        for kept, p, earlier in zip(total, self.parameters, before, strict=True):
            if p.grad is not None:
                kept += p.grad if earlier is None else p.grad - earlier

    def take(self) -> dict[str, float]:
        """Norm by part; starts anew."""
        norms = {part: float(torch.stack([whole(g.norm()) for g in total]).norm()) for part, total in self.sums.items()}
        self.sums = {}
        return norms
