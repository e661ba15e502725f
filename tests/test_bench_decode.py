"""The text benchmark: what it counts, what it compares, and that every recipe runs."""

import json

import pytest
import torch

from dimoo.bench.compare import KINDS, compared, differences, family, find, plan, savings
from dimoo.bench.decode import Problem, against, grid_of, random_problems, scores, wilson, written
from dimoo.bench.decode_plot import COLORS, front, plot_decoding
from dimoo.bench.workload import SIZES, random_model, random_vocab
from dimoo.canvas import Row
from dimoo.model import AnswerDenoiser
from dimoo.recipes import COMPARISONS, RECIPES, Recipe
from dimoo.settings import Defaults

CPU = torch.device("cpu")


def test_the_interval_is_wilsons():
    assert wilson(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson(0, 10)[0] == 0 and wilson(10, 10)[1] == 1 and wilson(10, 10)[0] < 0.8


def problem(vocab, words, length=6):
    answer = torch.tensor([vocab.boa, *[vocab.mask] * length, vocab.eoa])
    row = Row(answer, {"cond": torch.tensor([8, 9])}, vocab.everything)
    return Problem(row, lambda ids: ids[1 : len(words) + 1].tolist() == words)


def test_right_answers_forwards_and_tokens_are_counted(vocab):
    words = [10, 11, 12, vocab.eoa]
    model = AnswerDenoiser({3 + k: word for k, word in enumerate(words)}, vocab.size)
    posed = [problem(vocab, words), problem(vocab, [10, 11, 13])]
    recipes = {"llada": RECIPES["llada"], "fast": Recipe("", {"rule": "threshold(threshold={budget})"}, (0.5,))}
    wanted = [("llada", 1.0), ("llada", 0.5), ("fast", 0.5)]
    first, *_, last = made = list(scores(model, vocab, posed, wanted, Defaults(), 6, CPU, recipes))
    assert [(score.recipe, score.budget) for score in made] == wanted
    assert (first.right, first.problems, first.forwards, first.tokens) == ([True, False], 2, 4, 8)
    assert (last.right, last.forwards) == ([True, False], 1) and last.hits == 0 and last.flops == 0
    against(made, "llada")
    assert first.same == 1 and first.speed == 1
    row = first.row()
    assert row["accuracy"] == 0.5 and row["tokens_per_forward"] == 1 and "answers" not in row


def test_tokens_count_up_to_the_first_end(vocab):
    row = problem(vocab, []).row
    for answer, count in (([9, 9, vocab.eoa, 9, 9, 9], 3), ([9] * 6, 6), ([vocab.mask, 9, vocab.pad, 9, 9, 9], 2)):
        assert written(torch.tensor([vocab.boa, *answer, vocab.eoa]), row, vocab) == count


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs(name):
    model = random_model("1m", CPU, torch.float32)
    vocab = random_vocab(model.config)
    wanted = [(name, RECIPES[name].budgets[-1])]
    (score,) = scores(model, vocab, random_problems(vocab, 1, 4, 9), wanted, Defaults(), 4, CPU)
    assert score.forwards >= 1 and 0 <= score.hits < 1 and score.right is None and score.flops > 0
    assert family(name) in COLORS
    ended = torch.isin(score.answers[0], torch.tensor(vocab.ends)).any()
    assert ended or not (score.answers[0] == vocab.mask).any()


def test_pictures_of_random_problems_are_grids():
    assert [grid_of(codes) for codes in (1024, 12, 7, 0)] == [(32, 32), (3, 4), (1, 7), (0, 0)]
    vocab = random_vocab(SIZES["1m"]())
    with_picture, without = (random_problems(vocab, 1, codes, 5)[0].row for codes in (12, 0))
    extra = len(with_picture.conditions["cond"]) - len(without.conditions["cond"])
    assert extra == 2 + 3 * 5 and int((without.answer == vocab.mask).sum()) == 5


# What the scores say


def row(recipe, budget, right, forwards=4.0):
    accuracy = sum(right) / len(right)
    return {"recipe": recipe, "budget": budget, "right": right, "accuracy": accuracy, "forwards": forwards,
            "interval": wilson(sum(right), len(right))}  # fmt: skip


def test_a_plan_measures_everything_once():
    assert plan(["llada"], (1.0, 0.5), ["whole-blocks"]) == [("llada", 1.0), ("llada", 0.5), ("llada-whole", 1.0)]
    assert plan([], None, ["eoser-log"]) == [("eoser-ass", 1.0), ("ass", 1.0)]
    for name, comparison in COMPARISONS.items():
        for recipe, budget in (comparison.first, comparison.second):
            assert budget in RECIPES[recipe].budgets, name  # so that `all` measures it too


def test_both_sides_of_a_comparison_answer_the_same_problems():
    sudoku = [row("llada-whole", 1.0, [True] * 8 + [False] * 2), row("llada", 1.0, [True] * 6 + [False] * 4)]
    countdown = [row("llada-whole", 1.0, [False] * 10), row("llada", 1.0, [True] * 3 + [False] * 7)]
    assert differences(sudoku, COMPARISONS["whole-blocks"]).tolist() == [0] * 6 + [1] * 2 + [0] * 2
    assert differences(sudoku, COMPARISONS["eoser"]) is None
    found = compared({"sudoku": sudoku, "countdown": countdown})
    told = {each["task"]: each["difference"] for each in found}
    assert told == pytest.approx({"sudoku": 0.2, "countdown": -0.3, "planning minus arithmetic": 0.5})
    for each in found:
        low, high = each["interval"]
        assert low < each["difference"] < high and low >= -1 and high <= 1 and each["comparison"] == "whole-blocks"
    assert compared({"sudoku": sudoku})[0]["interval"] == found[0]["interval"]  # the same numbers every time
    assert {KINDS[task] for task in ("sudoku", "countdown")} == {"planning", "arithmetic"}


def test_what_is_saved_within_a_point():
    rows = [
        row("llada", 1.0, [True] * 90 + [False] * 10, 24.0), row("llada", 0.5, [True] * 85 + [False] * 15, 12.0),
        row("threshold", 0.9, [True] * 89 + [False] * 11, 6.0), row("factor", 2.0, [True] * 88 + [False] * 12, 4.0),
    ]  # fmt: skip
    saved = savings(rows, "llada")
    assert (saved["best"]["recipe"], saved["fewer"]) == ("threshold", 4.0)
    assert savings(rows[2:], "llada") is None
    assert [row["recipe"] for row in front(rows)] == ["factor", "threshold", "llada"]
    assert find(rows, "llada", 0.25) is None


def test_the_picture_is_drawn_with_and_without_comparisons(tmp_path):
    rows = [row(name, 1.0, [True, False], 2.0 + k) for k, name in enumerate(("llada-whole", "llada", "remdm"))]
    for tasks, comparing in (({"sudoku": rows, "countdown": rows}, True), ({"sudoku": rows[1:]}, False)):
        made = {"tasks": tasks, "comparisons": compared(tasks)}
        assert bool(made["comparisons"]) == comparing
        plot_decoding(made, tmp_path / "made" / "rows.png")
        assert [path.name for path in (tmp_path / "made").iterdir()] == ["rows.png"]


# The command


def test_the_command_times_random_weights(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--random", "1m", "--length", 8, "--problems", 1, "--recipes", "llada-dual", "--budgets", 0.5)
    done = cli("bench", "decode", *options, "--json", "made/rows.json")
    assert "llada-dual" in done.stdout and "random 1m" in done.stdout
    made = json.loads((tmp_path / "made/rows.json").read_text())
    assert [row["recipe"] for row in made["tasks"]["random"]] == ["llada", "llada-dual"]
    assert made["tasks"]["random"][1]["hits"] > 0 and made["savings"] == {"random": None}
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["rows.json"]


def test_the_command_compares_on_problems(cli, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--model", tiny_folder, "--tasks", "sudoku", "--problems", 2, "--compare", "eoser-log")
    done = cli("bench", "decode", *options, "--plot", "x.png", "--json", "x.json")
    assert "the same problems, answered in two ways" in done.stdout and "eoser-ass 1" in done.stdout
    made = json.loads((tmp_path / "x.json").read_text())
    assert [each["comparison"] for each in made["comparisons"]] == ["eoser-log"]
    assert {row["recipe"] for row in made["tasks"]["sudoku"]} == {"ass", "eoser-ass"}
    assert (tmp_path / "x.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--random", "2g"), "unknown random size '2g'; there is: 100m, 1m, 8b"),
        (("--random", "1m", "--length", 10, "--block-length", 4), "or block lengths 1, 2, 5, 10"),
        (("--random", "1m", "--plot", "x.png"), "random weights have no right answers"),
        (("--compare", "whole"), "unknown comparison 'whole'"),
        (("--recipes", "lada"), "unknown recipe 'lada', did you mean 'llada'"),
        (("--budgets", "0"), "--budgets takes numbers above 0"),
        (("--problems", 0), "--problems must be at least 1, got 0"),
        (("--image", 5), "--image goes with --random"),
    ],
)
def test_what_cannot_be_measured(cli, options, words):
    assert words in " ".join(cli("bench", "decode", *options, code=2).stderr.split())
