"""Training pictures of the image tokenizer, in pairs of twins that share some of their cells."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dimoo_training.world import Scene, World, render


def twin(world: World, scene: Scene, rng: np.random.Generator) -> Scene:
    """Another scene that keeps about half of the objects and half the time the background."""
    kept = [o for o in scene.objects if rng.random() < 0.6]
    taken = {o.cell for o in kept}
    extra = [o for o in world.sample(rng).objects if o.cell not in taken]
    background = scene.background if rng.random() < 0.5 else str(rng.choice(world.backgrounds))
    return Scene(tuple(kept + extra), background)


def shared_cells(scene: Scene, other: Scene, grid: int) -> np.ndarray:
    """(grid, grid) bool: cells with the same object in both, or empty in both on the same background."""
    mine, theirs = ({o.cell: o for o in s.objects} for s in (scene, other))
    shared = np.zeros((grid, grid), dtype=bool)
    for row in range(grid):
        for column in range(grid):
            a, b = mine.get((row, column)), theirs.get((row, column))
            shared[row, column] = a == b and (a is not None or scene.background == other.background)
    return shared


def pairs(world: World, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """2*count pictures, k and k+count being twins: pixels (2*count, 3, 64, 64) and shared latents (count, 8, 8)."""
    scenes = [world.sample(rng) for _ in range(count)]
    twins = [twin(world, scene, rng) for scene in scenes]
    pixels = torch.from_numpy(np.stack([render(s) for s in scenes + twins]))
    shared = np.stack([shared_cells(a, b, world.grid) for a, b in zip(scenes, twins, strict=True)])
    shared = torch.from_numpy(shared).repeat_interleave(2, 1).repeat_interleave(2, 2)
    return pixels.permute(0, 3, 1, 2).float() / 255, shared
