"""Sums, differences and products of small numbers: "12+7=" is "19". Held out by operands."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np

from dimoo_training.world.splits import held_out as is_held_out

from .countdown import OPERATORS
from .problem import Problem

LARGEST = {"+": 49, "-": 99, "*": 9}
"""Largest operand of each operator."""


@cache
def _split(held_out: bool) -> tuple[tuple[int, str, int], ...]:
    every = ((a, sign, b) for sign, top in LARGEST.items() for a, b in product(range(top + 1), repeat=2))
    possible = (p for p in every if p[1] != "-" or p[0] >= p[2])
    return tuple(p for p in possible if is_held_out(f"arithmetic {p}") is held_out)


def sample(rng: np.random.Generator, held_out: bool) -> Problem:
    """A problem of the wanted split."""
    pool = _split(held_out)
    a, sign, b = facts = pool[int(rng.integers(len(pool)))]
    return Problem(f"{a}{sign}{b}=", str(OPERATORS[sign](a, b)), "arithmetic", facts)


def right(problem: Problem, answer: str) -> bool:
    return answer == problem.answer
