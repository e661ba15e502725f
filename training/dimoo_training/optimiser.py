"""Muon for the matrices, AdamW for the rest: on small models about twice as fast per sample as AdamW alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class MatrixView:
    """A kernel (out, in, h, w) seen as the matrix (out, in*h*w) that `torch.optim.Muon` accepts; shares storage."""

    def __init__(self, kernel: nn.Parameter):
        self.kernel, self.matrix = kernel, nn.Parameter(kernel.data.flatten(1))
        assert self.matrix.data_ptr() == kernel.data_ptr(), "kernel must be contiguous"

    def take_gradient(self) -> None:
        self.matrix.grad = None if self.kernel.grad is None else self.kernel.grad.flatten(1)


class Optimiser:
    """Muon and AdamW behind one `step`, with one learning-rate scale for both.

    Args:
        model: its matrices and kernels go to Muon (Jordan et al. 2024), vectors and `apart` to AdamW.
        lr: peak rate of Muon, and of AdamW where `adam_lr` is None.
        apart: parts of parameter names that AdamW takes although they are matrices (embedding, head, codebook).
        clip: largest gradient norm; longer gradients are scaled to it.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        adam_lr: float | None = None,
        apart: tuple[str, ...] = ("wte", "transformer.ff_out"),
        clip: float = 1.0,
    ):
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        to_adam = [p for name, p in named if p.dim() < 2 or any(part in name for part in apart)]
        chosen = {id(p) for p in to_adam}
        to_muon = [p for _, p in named if id(p) not in chosen]
        self.views = [MatrixView(p) for p in to_muon if p.dim() > 2]
        matrices = [p for p in to_muon if p.dim() == 2] + [view.matrix for view in self.views]
        self.parameters: list[Tensor] = [p for _, p in named]
        self.clip = clip
        self.rates = (lr, adam_lr or lr)
        self.parts = [
            torch.optim.Muon(matrices, lr=lr, momentum=0.95, weight_decay=0.0),
            torch.optim.AdamW(to_adam, lr=self.rates[1], betas=(0.9, 0.95), weight_decay=0.0),
        ]

    def step(self, scale: float = 1.0) -> float:
        """One update at `lr * scale`; returns the gradient norm before clipping."""
        norm = nn.utils.clip_grad_norm_(self.parameters, self.clip)
        norm = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        for view in self.views:
            view.take_gradient()
        for part, rate in zip(self.parts, self.rates, strict=True):
            for group in part.param_groups:
                group["lr"] = rate * scale
            part.step()
        for p in self.parameters:
            p.grad = None
        return norm

    def state_dict(self) -> list[dict]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


class AdamW(Optimiser):
    """AdamW alone, as the hosted checkpoint was trained: betas (0.9, 0.95), decay on matrices only."""

    def __init__(self, model: nn.Module, lr: float, weight_decay: float = 0.1, clip: float = 1.0):
        self.parameters, self.views = [p for p in model.parameters() if p.requires_grad], []
        self.rates, self.clip = (lr,), clip
        groups = [
            {"params": [p for p in self.parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in self.parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.parts = [torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=(0.9, 0.95))]


def warmup_then_decay(progress: float, warmup: float = 0.02, decay: float = 0.4) -> float:
    """Rate scale over progress in [0, 1]: linear warm-up, constant, linear to zero over the last `decay` (0: never)."""
    return min(1.0, (progress + 1e-3) / warmup, max(0.0, (1 - progress) / decay) if decay else 1.0)
