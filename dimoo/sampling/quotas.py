"""Mask schedules: how many tokens are committed at each step.

A quota takes the number of masks and of steps and returns one count per step; the counts add up to the masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Quota = Callable[[int, int], list[int]]


def cosine(masks: int, steps: int) -> list[int]:
    """MaskGIT's cosine (Chang et al. 2022), as published for Lumina-DiMOO.

    After step s stay masked: floor(masks cos(pi/2 (s+1)/steps)), but fewer than before, at least 1, and none at
    the end. With more steps than masks, some steps at the end commit nothing.
    """
    kept, left = [], masks
    for s in range(steps - 1):
        left = max(1, min(left - 1, math.floor(masks * math.cos(math.pi / 2 * (s + 1) / steps))))
        kept.append(left)
    return _commits(masks, [*kept, 0])


def linear(masks: int, steps: int) -> list[int]:
    """Keep floor(masks (1 - (s+1)/steps)) masked after step s."""
    return _commits(masks, [masks * (steps - s - 1) // steps for s in range(steps)])


def even(masks: int, steps: int) -> list[int]:
    """LLaDA's split: masks // steps each, one more in the first masks % steps steps."""
    return [masks // steps + (s < masks % steps) for s in range(steps)]


def powers_of_two(masks: int, steps: int) -> list[int]:
    """Ascending step sizes 1, 2, 4, ... (ASS, Yang et al. 2025); the last step takes the rest."""
    return _commits(masks, [max(0, masks - 2 ** (s + 1) + 1) for s in range(steps - 1)] + [0])


def _commits(masks: int, kept: list[int]) -> list[int]:
    """Masks kept after each step -> commits of each step, never negative."""
    left, commits = masks, []
    for keep in kept:
        keep = min(keep, left)
        commits.append(left - keep)
        left = keep
    return commits


QUOTAS: dict[str, Quota] = {"cosine": cosine, "linear": linear, "even": even, "powers-of-two": powers_of_two}
