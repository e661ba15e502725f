"""FSDP2: every process holds a shard of each weight, and saves it. For models that do not fit one device.

`torch.distributed.fsdp.fully_shard` on every block and on the loss around them, because the loss is what is called:
it asks the model for states and logits apart, so that logits exist for masked positions only. Accelerate starts the
processes; its own FSDP2 preparation wraps the model alone, and refuses CPUs, where our tests run.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from dimoo_training.objective import MaskedLoss
from dimoo_training.recipes import Course
from dimoo_training.run_state import Run
from dimoo_training.state import load_state, save_state

TRAINED = states.StateDictOptions(ignore_frozen_params=True)
GATHERED = states.StateDictOptions(ignore_frozen_params=True, full_state_dict=True, cpu_offload=True)
SPREAD = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
KNOWN = "run.pt"
PARTIAL = states.StateDictOptions(strict=False)


class ShardedRun(Run):
    """A run whose weights and optimiser are in shards; weights that are not trained are not saved.

    Each state is a folder state-STEP of torch.distributed.checkpoint, written aside and renamed when whole.
    """

    def weights(self) -> dict[str, Tensor] | None:
        found = states.get_model_state_dict(self.model, options=GATHERED)       # empty but in the main process
        return None if self.rank else found

    def save(self, out: Path) -> None:
        streams = gather_object([self.rng.bit_generator.state])
        save_shards(out, self.step, self._state(), {"step": self.step, "streams": streams}, self.rank)

    def restore(self, out: Path) -> None:
        if not saved(out):
            return
        state = self._state()
        known = load_shards(out, state)
        states.set_state_dict(
            self.model, self.optimiser.parts, model_state_dict=state["model"], optim_state_dict=state["optimiser"],
            options=PARTIAL,
        )  # fmt: skip
        self.take(known["step"], known["streams"], out)

    def _state(self) -> dict:
        model, optimiser = states.get_state_dict(self.model, self.optimiser.parts, options=TRAINED)
        return {"model": model, "optimiser": optimiser}


def save_shards(out: Path, step: int, state: dict, known: dict, rank: int) -> None:
    """Write `state`, a shard in each process, and `known`, the same in all, to out/state-STEP; earlier ones go."""
    aside, folder = out / "state.part", out / f"state-{step:08d}"
    if folder.exists():
        return
    if rank == 0:
        shutil.rmtree(aside, ignore_errors=True)
    torch.distributed.barrier()
    dcp.save(state, checkpoint_id=aside)
    torch.distributed.barrier()
    if rank == 0:
        save_state(aside / KNOWN, known | {"processes": torch.distributed.get_world_size()})
        earlier = saved(out)
        aside.replace(folder)
        for path in earlier:
            shutil.rmtree(path)
    torch.distributed.barrier()


def load_shards(out: Path, state: dict) -> dict:
    """Fill `state` with the newest whole one in `out`; returns what was `known` with it.

    Raises ValueError for the state of another number of processes.
    """
    folder = saved(out)[-1]
    known = load_state(folder / KNOWN)
    if known["processes"] != torch.distributed.get_world_size():
        raise ValueError(f"{out} holds a run of {known['processes']} processes: go on with as many")
    dcp.load(state, checkpoint_id=folder)
    return known


def saved(out: Path) -> list[Path]:
    """Whole states, the newest last."""
    return sorted(path for path in out.glob("state-*") if path.is_dir())


def shard(model: nn.Module, root: nn.Module, precision: str, accelerator: Accelerator) -> nn.Module:
    """`root`, which is or contains `model`, in shards: a unit for each block and one for the rest.

    The main process's weights count; others may be on `meta`.
    """
    world, device, main = accelerator.num_processes, accelerator.device, accelerator.is_main_process
    weights = {name: value.detach() for name, value in model.state_dict().items()} if main else {}
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if precision == "bf16" else None, reduce_dtype=torch.float32,
        cast_forward_inputs=False,                              # angles and loss weights stay in float32
    )  # fmt: skip
    shards = {"mesh": init_device_mesh(device.type, (world,)), "mp_policy": policy}
    model.to("meta")
    for block in model.parts.blocks:
        fully_shard(block, **shards)
    fully_shard(root, **shards)
    root.to_empty(device=device).train()
    states.set_model_state_dict(model, weights, options=SPREAD)
    return root


def sharded(model: nn.Module, recipe: Course, accelerator: Accelerator) -> tuple[nn.Module, Run]:
    """The loss over the sharded model, and the run."""
    objective = shard(model, MaskedLoss(model), recipe.precision, accelerator)
    optimiser = recipe.optimiser(model)
    return objective, ShardedRun(model, optimiser, 0.0, recipe.seed, accelerator.process_index)
