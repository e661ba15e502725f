"""Text tasks: every problem has the answer it states, checkers see what is wrong, and splits share nothing."""

from dataclasses import replace

import pytest

from dimoo_training.puzzles import PUZZLES, arithmetic, countdown, sudoku
from dimoo_training.world import held_out


@pytest.mark.parametrize("name", PUZZLES)
@pytest.mark.parametrize("held", [False, True])
def test_the_stated_answer_is_right_and_others_are_not(name, held, rng):
    for _ in range(30):
        problem = PUZZLES[name].sample(rng, held_out=held)
        assert problem.kind == name and PUZZLES[name].right(problem, problem.answer)
        for wrong in ("", "yes", problem.answer + " 1", problem.answer[:-1], problem.text):
            assert not PUZZLES[name].right(problem, wrong)


@pytest.mark.parametrize(("name", "unit"), [
    ("sudoku", lambda p: f"sudoku {p.answer}"),
    ("countdown", lambda p: f"countdown {p.facts[0]} {p.facts[1]}"),
    ("arithmetic", lambda p: f"arithmetic {p.facts}"),
])  # fmt: skip
def test_problems_are_held_out_by_their_facts(name, unit, rng):
    for held in (False, True):
        assert {held_out(unit(PUZZLES[name].sample(rng, held))) for _ in range(40)} == {held}


def test_all_sudoku_grids_are_known():
    assert len(sudoku.solutions()) == len(set(sudoku.solutions())) == 288
    assert all(map(sudoku.valid, sudoku.solutions()))
    assert not sudoku.valid((1, 2, 3, 4) * 4) and not sudoku.valid((1,) * 15)
    parts = [len(sudoku._split(held)) for held in (False, True)]
    assert sum(parts) == 288 and parts[1] > 20


def test_a_sudoku_has_one_solution_and_some_cells_given(rng):
    for _ in range(30):
        problem = sudoku.sample(rng, held_out=False)
        given = sum(digit > 0 for digit in problem.facts)
        assert sudoku.GIVEN[0] <= given <= sudoku.GIVEN[1]
        assert sudoku.solve(problem.facts) == (sudoku.read(problem.answer),)
        assert sudoku.read(problem.text.removeprefix("sudoku ")) == problem.facts


def test_another_valid_grid_is_no_answer(rng):
    problem = sudoku.sample(rng, held_out=False)
    truth = sudoku.read(problem.answer)
    others = [grid for grid in sudoku.solutions() if grid != truth]
    assert not any(sudoku.right(problem, sudoku.write(grid)) for grid in others)
    assert sudoku.cells_right(problem, problem.answer) == 1
    assert sudoku.cells_right(problem, "1234 12") == sudoku.cells_right(problem, "9999 9999 9999 9999") == 0
    empty = problem.facts.index(0)
    slip = list(truth)
    slip[empty] = slip[empty] % 4 + 1
    left = problem.facts.count(0)
    assert sudoku.cells_right(problem, sudoku.write(tuple(slip))) == pytest.approx((left - 1) / left)


@pytest.mark.parametrize("answer", [
    "5*6=30 30-3=28",           # false
    "5*6=30 30-4=26",           # a number that is not there
    "5*6=30 5-3=2",             # used twice
    "30-3=27",                  # a step short
    "5*6=30 30-3=27 27-0=27",   # a step long
    "5*6=30 3-30=27", "__import__('os')", "5*6=30  30-3=27",
])  # fmt: skip
def test_countdown_refuses(answer):
    problem = countdown.Problem("countdown 3 5 6 make 27", "5*6=30 30-3=27", "countdown", ((3, 5, 6), 27))
    assert countdown.right(problem, "5*6=30 30-3=27") and countdown.right(problem, "6*5=30 30-3=27")
    assert not countdown.right(problem, answer)


def test_countdown_shows_its_numbers_in_any_order(rng):
    firsts = set()
    for _ in range(40):
        problem = countdown.sample(rng, held_out=False)
        shown = [int(word) for word in problem.text.split()[1:4]]
        assert tuple(sorted(shown)) == problem.facts[0] and problem.text.endswith(f"make {problem.facts[1]}")
        firsts.add(shown == sorted(shown))
    assert firsts == {True, False}


def test_arithmetic_never_goes_below_zero(rng):
    problems = [arithmetic.sample(rng, held_out=False) for _ in range(200)]
    assert {p.facts[1] for p in problems} == {"+", "-", "*"}
    assert all(int(p.answer) >= 0 for p in problems)
    assert not arithmetic.right(replace(problems[0], answer="7"), "8")
