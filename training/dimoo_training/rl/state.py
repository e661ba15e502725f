"""The state of an alignment run, saved so that a kill at any moment leaves the last whole one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch import Tensor

from dimoo.model import LLaDAForMultiModalGeneration
from dimoo.pipeline import DiMOOPipeline
from dimoo_training.adapters import adapt
from dimoo_training.ema import EMA
from dimoo_training.rl.adapters import Adam, Trained
from dimoo_training.rl.subjects import Curriculum
from dimoo_training.state import load_state, replace_folder, save_state

STATE = "state.pt"


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

    def save(self, out: Path) -> None:
        """Called in every process."""
        if not PartialState().is_main_process:
            return
        save_state(out / STATE, {
            "trained": self.trained.state_dict(), "ema": self.ema.shadow, "optimiser": self.optimiser.state_dict(),
            "step": self.step, "success": self.curriculum.success,
        })  # fmt: skip

    def restore(self, out: Path) -> None:
        """From what `save` left in `out`, if anything. ValueError for a run that trained other parameters."""
        if not (out / STATE).exists():
            return
        state = load_state(out / STATE)
        self.trained.load_state_dict(state["trained"])
        self.ema.shadow, self.step = state["ema"], state["step"]
        self.optimiser.load_state_dict(state["optimiser"])
        self.curriculum.success = state["success"]


@dataclass
class Saver:
    """Writes the state, and the checkpoint from the averaged weights (None in processes that do not write)."""

    run: AlignmentRun
    out: Path
    weights: Callable[[], dict[str, Tensor] | None]
    write_checkpoint: Callable[[dict[str, Tensor]], None]

    def save(self) -> None:
        """Called in every process."""
        self.run.save(self.out)
        with self.run.ema.swapped_into(self.run.trained):
            weights = self.weights()
            if weights is not None:
                self.write_checkpoint(weights)
        PartialState().wait_for_everyone()


def export(pipeline: DiMOOPipeline, rank: int | None, weights: dict[str, Tensor], folder: Path) -> None:
    """The whole checkpoint as bfloat16, adapters of `rank` merged; written aside, then renamed."""
    with torch.device("meta"):
        model = LLaDAForMultiModalGeneration(pipeline.model.config)
    adapted = adapt(model, rank, empty=True) if rank else None
    copies = {name: value.detach().to("cpu", copy=True) for name, value in weights.items()}     # merging is in place
    model.load_state_dict(copies, assign=True)
    if adapted is not None:
        model = adapted.merge_and_unload()
    parts = DiMOOPipeline(model.eval().to(torch.bfloat16), pipeline.tokenizer, pipeline.vqvae)
    parts.set_defaults(pipeline.defaults)
    aside = folder.with_name(folder.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    parts.save_pretrained(aside)
    replace_folder(aside, folder)
