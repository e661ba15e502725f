"""The text benchmark: what it counts, what it compares, and that every recipe runs."""

import json

import pytest
import torch

from dimoo.bench.decode import Problem, compare, random_model, random_problems, scores, wilson, written
from dimoo.canvas import Row
from dimoo.model import AnswerDenoiser
from dimoo.recipes import RECIPES, Recipe
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
    first, *_, last = made = list(scores(model, vocab, posed, recipes, Defaults(), 6, CPU))
    assert [score.recipe for score in made] == ["llada"] * 4 + ["fast"]
    assert (first.right, first.problems, first.forwards, first.tokens) == (1, 2, 4, 8)
    assert (last.right, last.forwards) == (1, 1) and last.hits == 0
    compare(made, "llada")
    assert first.same == 1 and first.speed == 1
    row = first.row()
    assert row["accuracy"] == 0.5 and row["tokens_per_forward"] == 1 and "answers" not in row


def test_tokens_count_up_to_the_first_end(vocab):
    row = problem(vocab, []).row
    for answer, count in (([9, 9, vocab.eoa, 9, 9, 9], 3), ([9] * 6, 6), ([vocab.mask, 9, vocab.pad, 9, 9, 9], 2)):
        assert written(torch.tensor([vocab.boa, *answer, vocab.eoa]), row, vocab) == count


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs(name):
    model, vocab = random_model("1m", CPU, torch.float32)
    (score,) = scores(model, vocab, random_problems(vocab, 1, 4, 9), {name: RECIPES[name]}, Defaults(), 4, CPU,
                      RECIPES[name].budgets[-1:])  # fmt: skip
    assert score.forwards >= 1 and 0 <= score.hits < 1 and score.right is None
    ended = torch.isin(score.answers[0][1:-1], torch.tensor(vocab.ends)).any()
    assert ended or not (score.answers[0] == vocab.mask).any()


def test_the_command_prints_a_table_and_writes_files(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--random", "1m", "--length", 8, "--problems", 1, "--recipes", "llada-dual", "--budgets", 0.5)
    done = cli("bench", "decode", *options, "--json", "made/rows.json", "--plot", "made/rows.png")
    assert "llada-dual" in done.stdout and "random 1m" in done.stdout
    made = json.loads((tmp_path / "made/rows.json").read_text())
    assert [row["recipe"] for row in made["tasks"]["random"]] == ["llada", "llada-dual"]
    assert made["tasks"]["random"][1]["hits"] > 0 and (tmp_path / "made/rows.png").stat().st_size > 1000
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["rows.json", "rows.png"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--random", "2g"), "unknown random size '2g'; allowed: 1m, 100m"),
        (("--recipes", "lada"), "unknown recipe 'lada', did you mean 'llada'"),
        (("--budgets", "0"), "--budgets takes numbers above 0"),
        (("--problems", 0), "--problems must be at least 1, got 0"),
        (("--image", 5), "--image goes with --random"),
    ],
)
def test_what_cannot_be_measured(cli, options, words):
    assert words in " ".join(cli("bench", "decode", *options, code=2).stderr.split())
