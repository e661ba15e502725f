"""Everything that changes during a run, saved and restored as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from accelerate.utils import gather_object
from torch import Tensor, nn

from dimoo_training.ema import EMA
from dimoo_training.optimiser import Optimiser
from dimoo_training.state import load_state, save_state


def averaged(weights: dict[str, Tensor], shadow: dict[str, Tensor] | None) -> dict[str, Tensor]:
    """The weights, those that are averaged by their average."""
    return weights | (shadow or {})


class Run:
    """Weights, their average, optimiser, step, random state. After `restore` a run goes on as if never stopped.

    Every process has one; the states are the same but for the random state, so the main process writes for all.
    """

    FILE = "state.pt"

    def __init__(self, model: nn.Module, optimiser: Optimiser, ema: float, seed: int, rank: int = 0):
        self.model, self.optimiser, self.step, self.rank = model, optimiser, 0, rank
        self.ema = EMA(model, ema) if ema else None
        self.rng = np.random.default_rng([seed, 2, rank])

    def update(self, scale: float) -> float:
        """One step of the optimiser at `scale` of its rate, and of the average; returns the gradient norm."""
        norm = self.optimiser.step(scale)
        self.step += 1
        if self.ema:
            self.ema.update(self.model, self.step)
        return norm

    def weights(self) -> dict[str, Tensor] | None:
        """The weights to keep, averaged where the run averages; None in processes that do not write."""
        if self.rank:
            return None
        kept = averaged(self.model.state_dict(), self.ema and self.ema.shadow)
        return {name: p.detach() for name, p in kept.items()}

    def save(self, out: Path) -> None:
        """Called in every process."""
        streams = gather_object([self.rng.bit_generator.state])
        if self.rank == 0:
            save_state(out / self.FILE, {
                "model": self.model.state_dict(), "ema": self.ema and self.ema.shadow,
                "optimiser": self.optimiser.state_dict(), "step": self.step, "streams": streams,
            })  # fmt: skip

    def restore(self, out: Path) -> None:
        """Go on from what `save` left in `out`, if anything. ValueError for a run of fewer processes."""
        if not (out / self.FILE).exists():
            return
        state = load_state(out / self.FILE)
        self.model.load_state_dict(state["model"])
        if self.ema:
            self.ema.shadow = state["ema"]
        self.optimiser.load_state_dict(state["optimiser"])
        self.take(state["step"], state["streams"], out)

    def take(self, step: int, streams: list[dict], out: Path) -> None:
        if self.rank >= len(streams):
            raise ValueError(f"{out} holds a run of {len(streams)} processes: go on with as many")
        self.step = step
        self.rng.bit_generator.state = streams[self.rank]
