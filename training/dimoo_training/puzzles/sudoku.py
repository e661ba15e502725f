"""4x4 Sudoku with one solution, held out by solution grid.

Asked as "sudoku 1030 0241 4000 0300" (0: empty), answered by the four full rows.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np

from dimoo_training.world.splits import held_out as is_held_out

from .problem import Problem

SIDE, BOX = 4, 2
GIVEN = (6, 11)
"""Fewest and most digits given."""

Grid = tuple[int, ...]  # 16 digits in reading order, 0 where empty

UNITS = tuple(
    frozenset(r * SIDE + c for r in range(SIDE) for c in range(SIDE) if unit(r, c) == k)
    for unit in (lambda r, c: r, lambda r, c: c, lambda r, c: (r // BOX) * BOX + c // BOX)
    for k in range(SIDE)
)


def valid(grid: Grid) -> bool:
    """Whether every row, column and box holds 1 to 4."""
    return len(grid) == SIDE * SIDE and all({grid[i] for i in unit} == {1, 2, 3, 4} for unit in UNITS)


@cache
def solutions() -> tuple[Grid, ...]:
    """All 288 full grids."""
    rows = tuple(permutations(range(1, SIDE + 1)))
    pairs = [a + b for a in rows for b in rows if all(len({*a[i : i + 2], *b[i : i + 2]}) == 4 for i in (0, 2))]
    return tuple(grid for top in pairs for bottom in pairs if valid(grid := top + bottom))


@cache
def _as_array() -> np.ndarray:
    return np.array(solutions())


def solve(grid: Grid) -> tuple[Grid, ...]:
    """Every full grid that keeps the digits of `grid`."""
    given = np.array(grid)
    fits = (_as_array() == given)[:, given > 0].all(1)
    return tuple(solutions()[i] for i in np.flatnonzero(fits))


def write(grid: Grid) -> str:
    """ "1030 0241 4000 0300"."""
    return " ".join("".join(map(str, grid[i : i + SIDE])) for i in range(0, SIDE * SIDE, SIDE))


def read(text: str) -> Grid | None:
    """The grid a text shows, or None."""
    digits = text.replace(" ", "")
    return tuple(map(int, digits)) if len(digits) == SIDE * SIDE and set(digits) <= set("01234") else None


def sample(rng: np.random.Generator, held_out: bool) -> Problem:
    """A puzzle whose solution grid is of the wanted split."""
    pool = _split(held_out)
    answer = pool[int(rng.integers(len(pool)))]
    while True:
        given = int(rng.integers(GIVEN[0], GIVEN[1] + 1))
        shown = set(rng.permutation(SIDE * SIDE)[:given].tolist())
        puzzle = tuple(digit if i in shown else 0 for i, digit in enumerate(answer))
        if len(solve(puzzle)) == 1:
            return Problem(f"sudoku {write(puzzle)}", write(answer), "sudoku", puzzle)


@cache
def _split(held_out: bool) -> tuple[Grid, ...]:
    return tuple(grid for grid in solutions() if is_held_out(f"sudoku {write(grid)}") is held_out)


def right(problem: Problem, answer: str) -> bool:
    """Whether the answer is a full grid that keeps what was given."""
    grid = read(answer)
    return grid is not None and valid(grid) and all(p in (0, g) for p, g in zip(problem.facts, grid, strict=True))


def cells_right(problem: Problem, answer: str) -> float:
    """Share of the empty cells filled as in the solution; 0 for what is no grid."""
    grid, solution = read(answer), read(problem.answer)
    empty = [i for i, digit in enumerate(problem.facts) if digit == 0]
    return 0.0 if grid is None else sum(grid[i] == solution[i] for i in empty) / len(empty)
