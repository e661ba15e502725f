"""The state of an alignment run, saved so that a kill at any moment leaves the last whole one."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from dimoo.pipeline import DiMOOPipeline
from dimoo_training.ema import EMA
from dimoo_training.rl.adapters import Adam, Trained, merged
from dimoo_training.rl.subjects import Curriculum
from dimoo_training.state import load_state, save_state


class AlignmentRun:
    """Trained weights, their average, optimiser, curriculum, step. Rounds have random streams of their own, numbered
    by the step, so that no random state has to be kept; the processes hold the same."""

    def __init__(self, trained: Trained, optimiser: Adam, ema: float, kinds: Sequence[str]):
        self.trained, self.optimiser, self.step = trained, optimiser, 0
        self.ema, self.curriculum = EMA(trained, ema), Curriculum(kinds)

    def hear(self, kinds: Sequence[str], rewards: Sequence[float]) -> None:
        """Rewards of all processes' samples go to every process's curriculum."""
        heard = gather_object(list(zip(kinds, rewards, strict=True)))
        self.curriculum.hear([kind for kind, _ in heard], [reward for _, reward in heard])

    def save(self, path: Path) -> None:
        save_state(path, {
            "trained": self.trained.state_dict(), "ema": self.ema.shadow, "optimiser": self.optimiser.state_dict(),
            "step": self.step, "success": self.curriculum.success,
        })  # fmt: skip

    def restore(self, path: Path) -> None:
        """Raises ValueError for the state of a run that trained other parameters."""
        state = load_state(path)
        self.trained.load_state_dict(state["trained"])
        self.ema.shadow, self.step = state["ema"], state["step"]
        self.optimiser.load_state_dict(state["optimiser"])
        self.curriculum.success = state["success"]


class Saver:
    """Writes out/state.pt; `write_checkpoint` is called with the averaged weights in the model."""

    def __init__(self, run: AlignmentRun, path: Path, accelerator: Accelerator, write_checkpoint: Callable[[], None]):
        self.run, self.path, self.accelerator, self.write_checkpoint = run, path, accelerator, write_checkpoint

    def save(self) -> None:
        if self.accelerator.is_main_process:
            self.run.save(self.path)
            with self.run.ema.swapped_into(self.run.trained):
                self.write_checkpoint()
        self.accelerator.wait_for_everyone()


def export(pipeline: DiMOOPipeline, adapted, folder: Path) -> None:
    """The whole checkpoint as bfloat16, adapters merged; written aside, then renamed."""
    model = merged(adapted) if adapted is not None else copy.deepcopy(pipeline.model)
    parts = DiMOOPipeline(model.eval().to(torch.bfloat16), pipeline.tokenizer, pipeline.vqvae)
    parts.set_defaults(pipeline.defaults)
    aside, old = folder.with_name(folder.name + ".part"), folder.with_name(folder.name + ".old")
    for path in (aside, old):
        shutil.rmtree(path, ignore_errors=True)
    parts.save_pretrained(aside)
    if folder.exists():
        folder.rename(old)
    aside.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
