"""Countdown with three numbers: reach the target, using each number once.

Asked as "countdown 3 5 6 make 27", answered in two steps, "5*6=30 30-3=27". Held out by numbers and target.
"""

from __future__ import annotations

import operator
import re
from functools import cache
from itertools import permutations, product

import numpy as np

from dimoo_training.world.splits import held_out as is_held_out

from .problem import Problem

LARGEST, TARGETS = 12, range(1, 100)
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
STEP = re.compile(r"(\d{1,3})([+*-])(\d{1,3})=(\d{1,3})")


def _ways(numbers: tuple[int, int, int]) -> dict[int, str]:
    """target -> its first way in a fixed order; no intermediate result below 1."""
    found: dict[int, str] = {}
    for (a, b, c), one, two in product(permutations(numbers), OPERATORS, OPERATORS):
        first = OPERATORS[one](a, b)
        for left, right in ((first, c), (c, first)):
            result = OPERATORS[two](left, right)
            if first > 0 and result in TARGETS:
                found.setdefault(result, f"{a}{one}{b}={first} {left}{two}{right}={result}")
    return found


@cache
def _split(held_out: bool) -> tuple[tuple[tuple[int, int, int], int, str], ...]:
    """(numbers, target, way) of one split."""
    every = product(range(1, LARGEST + 1), repeat=3)
    problems = [(n, target, way) for n in every if n == tuple(sorted(n)) for target, way in _ways(n).items()]
    return tuple(p for p in problems if is_held_out(f"countdown {p[0]} {p[1]}") is held_out)


def sample(rng: np.random.Generator, held_out: bool) -> Problem:
    """A problem of the wanted split; the numbers come in random order."""
    pool = _split(held_out)
    numbers, target, way = pool[int(rng.integers(len(pool)))]
    shown = " ".join(str(numbers[i]) for i in rng.permutation(3))
    return Problem(f"countdown {shown} make {target}", way, "countdown", (numbers, target))


def right(problem: Problem, answer: str) -> bool:
    """Whether the two steps are true, use each number once, and end at the target. A parser, never `eval`."""
    steps = [STEP.fullmatch(part) for part in answer.split(" ")]
    if len(steps) != 2 or not all(steps):
        return False
    numbers, target = problem.facts
    left, result = list(numbers), None
    for step in steps:
        a, sign, b, result = int(step[1]), step[2], int(step[3]), int(step[4])
        for used in (a, b):
            if used not in left:
                return False
            left.remove(used)
        if OPERATORS[sign](a, b) != result:
            return False
        left.append(result)
    return left == [target] == [result]
