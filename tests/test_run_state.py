"""What a run keeps: the average of its weights, its notes, and batches made ahead by other processes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from dimoo_training.ema import EMA
from dimoo_training.notes import Notes
from dimoo_training.recipes import SFTRecipe
from dimoo_training.workers import Ahead

# The average


def test_the_average_follows_fast_at_first_and_slowly_then():
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    ema, expected = EMA(model, 0.5), 0.0
    for step in range(1, 12):
        nn.init.constant_(model.weight, float(step))
        ema.update(model, step)
        kept = min(0.5, (1 + step) / (10 + step))
        expected = kept * expected + (1 - kept) * step
        assert ema.shadow["weight"].item() == pytest.approx(expected)
    assert kept == 0.5 and model.weight.item() == 11                # the model keeps its own


# Notes


def notes(out, start=0, steps=8, every=2, log=lambda words: None):
    return Notes(out, start, steps, every, log)


def read(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_notes_are_means_by_kind_and_by_how_much_was_masked(tmp_path):
    said = []
    kept = notes(tmp_path, log=said.append)
    kept.hear("draw", torch.tensor([1.0, 3.0]), torch.tensor([0.1, 1.0]))
    kept.turn(1, grad_norm=0.5)
    kept.hear("draw", torch.tensor([5.0, 7.0]), torch.tensor([0.24, 0.25]))
    kept.hear("edit", torch.tensor([2.0]), torch.tensor([0.5]))
    kept.turn(2, grad_norm=0.25)
    kept.close()
    (entry,) = read(tmp_path)
    assert entry.pop("seconds_per_step") >= 0
    assert entry == {
        "step": 2, "draw": 4.0, "draw/0-25%": 3.0, "draw/25-50%": 7.0, "draw/75-100%": 3.0, "edit": 2.0,
        "edit/50-75%": 2.0, "grad_norm": 0.25,
    }  # fmt: skip
    assert len(said) == 1 and "draw 4.000" in said[0] and "min left" in said[0] and "%" not in said[0]
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in board.Scalars("loss/draw")] == [(2, 4.0)]
    assert "loss/draw/75-100%" in board.Tags()["scalars"] and "grad_norm" in board.Tags()["scalars"]


def test_a_resumed_run_takes_back_what_comes_after_its_start(tmp_path):
    first = notes(tmp_path, every=1)
    for step in (1, 2, 3, 4):
        first.hear("draw", torch.tensor([float(step)]), torch.tensor([0.5]))
        first.turn(step)
    first.close()
    second = notes(tmp_path, start=2, every=1)
    assert [entry["step"] for entry in read(tmp_path)] == [1, 2]
    second.hear("draw", torch.tensor([30.0]), torch.tensor([0.5]))
    second.turn(3)
    second.close()
    assert [(entry["step"], entry["draw"]) for entry in read(tmp_path)] == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_a_log_whose_last_line_was_torn_is_taken_up(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "draw": 1.0}\n{"step": 2, "dr')
    notes(tmp_path, start=1).close()
    assert [entry["step"] for entry in read(tmp_path)] == [1]


# Batches made ahead


class Counting:
    """A source whose batches tell their step and their stream."""

    def batches(self, step, rng):
        for kind in ("a", "b"):
            yield kind, {"step": torch.tensor([step]), "drawn": torch.from_numpy(rng.random(2))}


def test_batches_made_ahead_depend_on_the_step_alone():
    made = {}
    for workers, start in ((1, 0), (2, 2)):
        source = Ahead(Counting(), seed=7, workers=workers)
        for step in range(start, 5):
            made[workers, step] = list(source.batches(step, np.random.default_rng(workers)))
        source.pool.terminate()
    for (_, step), batches in made.items():
        assert [kind for kind, _ in batches] == ["a", "b"] and int(batches[0][1]["step"]) == step
    for step in range(2, 5):
        for (_, one), (_, other) in zip(made[1, step], made[2, step], strict=True):
            assert torch.equal(one["drawn"], other["drawn"])
    assert not torch.equal(made[1, 2][0][1]["drawn"], made[1, 3][0][1]["drawn"])


# The mixture


def test_a_step_has_every_kind_that_is_always_there_and_one_of_the_others():
    recipe = SFTRecipe(always={"draw": (2, 9)}, in_turn={"full": (1, 9), "style": (3, 9)})
    assert [recipe.batches(step) for step in (0, 1, 2)] == [
        {"draw": (2, 9), "full": (1, 9)}, {"draw": (2, 9), "style": (3, 9)}, {"draw": (2, 9), "full": (1, 9)},
    ]  # fmt: skip
    assert replace(recipe, in_turn={}).batches(5) == {"draw": (2, 9)}
    drilled = replace(recipe, steps=100, always={"answer": (1, 5)}, drills={"exists": (0.2, 0.3)})
    assert [drilled.batches(step) == {"exists": (1, 5)} for step in (19, 20, 29, 30)] == [False, True, True, False]


def test_worlds_grow_during_a_run():
    recipe = SFTRecipe(easy_until=0.2, easy_share=0.25)
    assert recipe.shares(0.1) == {"first": 1.0}
    assert recipe.shares(0.2) == {"first": 0.25, "full": 0.75}
    assert replace(recipe, books={"full": {}}).shares(0.9) == {"full": 1.0}
