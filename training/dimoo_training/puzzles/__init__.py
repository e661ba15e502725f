"""Text tasks with exact checkers: small Sudoku, Countdown and arithmetic.

A task is a module with `sample(rng, held_out) -> Problem` and `right(problem, answer) -> bool`; adding it to PUZZLES
puts it into training, evaluation and rewards.
"""

from . import arithmetic, countdown, sudoku
from .problem import Problem

PUZZLES = {"sudoku": sudoku, "countdown": countdown, "arithmetic": arithmetic}

__all__ = ["PUZZLES", "Problem"]
