"""Batches made ahead of the steps by other processes, for devices that are faster than one core can write examples."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

STEPS_AHEAD = 2
"""Steps in work for each process."""

_source: Any = None


class Ahead:
    """A source whose steps are made by `workers` processes.

    Step s has a random stream of its own, of (seed, rank, s), so batches do not depend on the number of workers, and
    a resumed run meets the same ones. `rng` is not used. Make it before anything runs on a GPU: workers are forks.
    """

    def __init__(self, source: Any, seed: int, workers: int):
        global _source
        _source = source                                                # forked with it: books are not sent around
        self.seed, self.reach = (seed, 3, int(os.environ.get("RANK", 0))), STEPS_AHEAD * workers
        self.pool = get_context("fork").Pool(workers, torch.set_num_threads, (1,))
        self.asked: dict[int, Any] = {}

    def batches(self, step: int, rng: np.random.Generator) -> Iterator[tuple[str, dict]]:
        for ahead in range(step, step + self.reach):
            if ahead not in self.asked:
                self.asked[ahead] = self.pool.apply_async(_make, (ahead, self.seed))
        for kind, arrays in self.asked.pop(step).get():
            yield kind, {name: torch.from_numpy(array) for name, array in arrays.items()}


def _make(step: int, seed: tuple[int, ...]) -> list[tuple[str, dict[str, np.ndarray]]]:
    """In a worker: the batches of a step as arrays, which travel without file descriptors."""
    made = _source.batches(step, np.random.default_rng([*seed, step]))
    return [(kind, {name: value.numpy() for name, value in batch.items()}) for kind, batch in made]
