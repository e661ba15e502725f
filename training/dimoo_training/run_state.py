"""Everything that changes during a run, saved and restored as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

from dimoo_training.ema import EMA
from dimoo_training.optimiser import Optimiser
from dimoo_training.state import load_state, save_state


class Run:
    """Weights, their average, optimiser, step, random state. After `restore` a run goes on as if never stopped."""

    def __init__(self, model: nn.Module, optimiser: Optimiser, ema: float, seed: int, rank: int = 0):
        self.model, self.optimiser, self.step, self.rank = model, optimiser, 0, rank
        self.ema = EMA(model, ema)
        self.rng = np.random.default_rng([seed, 2, rank])

    def save(self, path: Path, streams: list[dict]) -> None:
        """`streams`: the random state of every process, in order of rank."""
        save_state(path, {
            "model": self.model.state_dict(), "ema": self.ema.shadow, "optimiser": self.optimiser.state_dict(),
            "step": self.step, "streams": streams,
        })  # fmt: skip

    def restore(self, path: Path) -> None:
        state = load_state(path)
        if self.rank >= len(state["streams"]):
            raise ValueError(f"{path} is of a run with {len(state['streams'])} processes: go on with as many")
        self.model.load_state_dict(state["model"])
        self.ema.shadow = state["ema"]
        self.optimiser.load_state_dict(state["optimiser"])
        self.step = state["step"]
        self.rng.bit_generator.state = state["streams"][self.rank]
