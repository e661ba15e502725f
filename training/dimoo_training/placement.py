"""Where a model's weights are during a run: whole in every process here, in shards in `sharded.py`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from accelerate import Accelerator
from torch import nn

from dimoo_training.objective import MaskedLoss
from dimoo_training.recipes import Course
from dimoo_training.run_state import Run

Placement = Callable[[nn.Module, Course, Accelerator], tuple[nn.Module, Run]]
"""Puts a model on the device; returns the loss to call, and the run to save and restore."""


def replicated(model: nn.Module, recipe: Course, accelerator: Accelerator) -> tuple[nn.Module, Run]:
    """All weights in every process; gradients are averaged where there are several."""
    model.to(accelerator.device).train()
    run = Run(model, recipe.optimiser(model), recipe.ema, recipe.seed, accelerator.process_index)
    if recipe.compile:
        torch._dynamo.config.cache_size_limit = 32                  # one shape a kind
        for block in model.parts.blocks:
            block.compile(dynamic=False)
    return accelerator.prepare(MaskedLoss(model)), run
