"""Where the models of an alignment run are: whole in every process, or in shards (FSDP2, see `..sharded`).

Rollouts and judging run at their own pace in each process, and sharded weights are gathered by all at once. So they
are gathered for the first half of a round, and in shards for the second, whose forwards are the same in number
everywhere (`Context.kept`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method

from dimoo_training.rl.adapters import WithoutAdapters
from dimoo_training.rl.likelihood import Learner
from dimoo_training.rl.recipes import RLRecipe
from dimoo_training.rl.state import AlignmentRun
from dimoo_training.sharded import PARTIAL, TRAINED, load_shards, save_shards, saved, shard

EVERYTHING = states.StateDictOptions(full_state_dict=True, cpu_offload=True)


@dataclass
class Placed:
    """learner: the policy, wrapped for training. gathered: a context in which every process can read alone. Run: the
    kind of run that saves it. weights: all of the policy's weights, or None where another process has them."""

    learner: nn.Module
    gathered: Callable[[], AbstractContextManager]
    Run: type[AlignmentRun]
    weights: Callable[[], dict[str, Tensor] | None]


def replicated(network: nn.Module, reference: nn.Module, recipe: RLRecipe, accelerator: Accelerator) -> Placed:
    """Whole weights; gradients are averaged where there are several processes."""
    learner, main = accelerator.prepare(Learner(network)), accelerator.is_main_process
    return Placed(learner, nullcontext, AlignmentRun, lambda: network.state_dict() if main else None)


def sharded(network: nn.Module, reference: nn.Module, recipe: RLRecipe, accelerator: Accelerator) -> Placed:
    """Shards of the policy and of the model at the start, which with adapters is the policy without them."""
    models = [network] if isinstance(reference, WithoutAdapters) else [network, reference]
    for model in models:
        shard(model, model, recipe.precision, accelerator)
    reference.eval()
    learner = Learner(network)
    network.masked_loss = learner.supervised.forward        # asks for states and logits apart: a forward of its own
    register_fsdp_forward_method(network, "masked_loss")
    del learner.supervised
    learner.supervised = network.masked_loss

    def weights() -> dict[str, Tensor] | None:
        found = states.get_model_state_dict(network, options=EVERYTHING)
        return found if accelerator.is_main_process else None

    return Placed(learner, lambda: gathered(models), ShardedAlignment, weights)


@contextmanager
def gathered(models: list[nn.Module]) -> Iterator[None]:
    """All weights in every process inside the block, shards again behind it."""
    units = [(unit, unit is not model) for model in models for unit in model.modules() if isinstance(unit, FSDPModule)]
    for unit, _ in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    try:
        yield
    finally:
        for unit, is_block in units:
            unit.set_reshard_after_forward(is_block, recurse=False)
            unit.reshard()


class ShardedAlignment(AlignmentRun):
    """A run in shards: a folder state-STEP, see `..sharded.save_shards`."""

    def save(self, out: Path) -> None:
        known = {"step": self.step, "success": self.curriculum.success}
        save_shards(out, self.step, self._state(), known, torch.distributed.get_rank())

    def restore(self, out: Path) -> None:
        if not saved(out):
            return
        state = self._state()                               # makes empty moments where there are none: not at a start
        known = load_shards(out, state)
        states.set_state_dict(
            self.trained.network, [self.optimiser.inner], model_state_dict=state["trained"],
            optim_state_dict=state["optimiser"], options=PARTIAL,
        )  # fmt: skip
        self.ema.shadow, self.step, self.curriculum.success = state["ema"], known["step"], known["success"]

    def _state(self) -> dict:
        trained, optimiser = states.get_state_dict(self.trained.network, [self.optimiser.inner], options=TRAINED)
        return {"trained": trained, "optimiser": optimiser, "ema": self.ema.shadow}
