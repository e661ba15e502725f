"""What a difference is worth, and the files the experiments leave."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from dimoo_training.rl import compare, experiments, report, runs, tune
from dimoo_training.rl.recipes import self_grpo

pytestmark = pytest.mark.usefixtures("fresh_accelerate")


def outcomes(rng, share, prompts=40):
    return {family: (rng.random((prompts, 4)) < share).astype(float) for family in ("two", "position", "colors")}


def test_a_difference_is_paired_by_prompt():
    rng = np.random.default_rng(0)
    before = outcomes(rng, 0.5)
    after = {family: np.minimum(1, x + (rng.random(x.shape) < 0.2)) for family, x in before.items()}
    found = compare.paired(before, after)
    assert found.mean == pytest.approx(100 * np.mean([(after[f] - before[f]).mean() for f in before]), abs=0.01)
    assert 0 < found.low < found.mean < found.high
    hard = compare.paired(before, {family: x[::-1] for family, x in after.items()})     # other prompts: far less sure
    assert hard.high - hard.low > 1.5 * (found.high - found.low)


def test_the_same_is_no_difference_and_other_prompts_cannot_be_paired(rng):
    before = outcomes(rng, 0.5)
    same = compare.paired(before, before)
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    with pytest.raises(ValueError, match="same prompts"):
        compare.paired(before, outcomes(rng, 0.5, prompts=3))


def test_the_interval_holds_a_difference_of_nothing():
    rng, held = np.random.default_rng(1), 0
    for seed in range(60):
        found = compare.paired(outcomes(rng, 0.6, 20), outcomes(rng, 0.6, 20), rounds=200, seed=seed)
        held += found.low <= 0 <= found.high
    assert held > 50


def test_means_are_over_families():
    found = compare.summary({"a": np.array([[1.0]]), "b": np.array([[0.0], [1.0]])})
    assert found == {"a": 1.0, "b": 0.5, "mean": 0.75}


def test_real_drawings_and_puzzles_are_judged(world64):
    found, forwards = compare.drawings(world64, per_kind=1, seeds=(0,), num_inference_steps=2)
    assert {x.shape for x in found.values()} == {(1, 1)} and len(found) == 6 and forwards == 2
    assert compare.puzzles(world64, "sudoku", count=2)["sudoku"].shape == (2, 1)


def test_what_must_not_get_worse_is_paired_too(world64, monkeypatch):
    monkeypatch.setattr(compare, "EDITED", {"num_inference_steps": 1})
    for found in (compare.questions(world64, per_kind=1), compare.edits(world64, per_kind=1)):
        assert len(found) > 5 and {x.shape for x in found.values()} == {(1, 1)}


def test_the_judge_is_measured_in_both_ways_to_ask(world64):
    found = compare.reading(world64, per_kind=1)
    assert set(found) == {"letters", "letters/unseen", "words", "words/unseen"}
    assert all(0 <= share <= 1 for share in found.values())


def test_tuning_compares_short_runs(tiny_folder, tmp_path):
    short = replace(
        runs.RUNS["sudoku"].recipe(), iterations=3, prompts=1, group=2, sft_share=0.0, precision="no",
        rewards={"answer_format": 1.0},
    )  # fmt: skip
    rows = tune.tune(str(tiny_folder), short, "lr", [1e-3, 1e-2], tmp_path, lambda words: None)
    assert [row["lr"] for row in rows] == ["0.001", "0.01"] and {"reward", "solved", "ties", "seconds"} <= set(rows[0])
    with pytest.raises(ValueError, match=r"no 'rate'.*lr"):
        tune.tune(str(tiny_folder), short, "rate", [1], tmp_path)
    assert tune.read("1e-4") == 1e-4 and tune.read("words") == "words" and tune.read("[0.1]") == [0.1]


def test_what_rose_is_told_with_its_error():
    entries = [{"reward": 0.1 * (k // 3), **dict.fromkeys(tune.PHASES, 1.0)} for k in range(9)]
    assert tune.summary(entries) == {"reward": "+20.0 ± 0.0", "seconds": "3.0"}


def test_the_control_gets_as_much_compute():
    recipe = runs.supervised(self_grpo())
    assert recipe.rule == "sft" and recipe.iterations == self_grpo().iterations
    spent = recipe.sft_batches * 3 * runs.BATCH
    assert spent == pytest.approx(runs.cost(self_grpo()), rel=0.05)


def test_every_run_of_the_table_is_a_recipe():
    for name, experiment in runs.RUNS.items():
        assert experiment.recipe().iterations == self_grpo().iterations, name
    assert runs.RUNS["shuffled"].recipe().shuffled


def test_searches_get_the_same_budget(world64, tmp_path):
    world64.save_pretrained(tmp_path / "model")
    place = experiments.Place(str(tmp_path / "model"), tmp_path, tmp_path, per_kind=1, log=lambda words: None)
    found = experiments.searches(place, place.model)
    plain, hierarchical, best, more = found.values()
    assert plain["forwards"] == 8 < hierarchical["forwards"]
    assert best["forwards"] == pytest.approx(hierarchical["forwards"], rel=0.2)
    assert more["forwards"] <= 64 and all(0 <= m["scores"]["mean"] <= 1 for m in found.values())


def test_the_table_grows_with_every_run_and_what_is_done_is_not_done_again(rng, tmp_path, monkeypatch):
    trained, seen = [], []

    def align(pipeline, recipe, folder, supervised, log):
        trained.append(recipe)
        folder.mkdir(parents=True)
        lines = [{"step": k, "reward": k / 9, "oracle": k / 18} for k in range(10)]
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def measure(place, model, puzzle):
        return {part: outcomes(rng, 0.5) for part in (("main",) if puzzle else ("main", "questions", "edits"))}

    class Loading:
        from_pretrained = staticmethod(lambda folder: None)

    for name, stub in (("align", align), ("measure", measure), ("DiMOOPipeline", Loading)):
        monkeypatch.setattr(experiments, name, stub)
    monkeypatch.setattr(compare, "reading", lambda *given: {"letters": 0.5, "letters/unseen": 0.25})
    monkeypatch.setattr(experiments.Rehearsal, "of", lambda *given: None)
    found = {"hierarchical 8": {"scores": {"mean": 0.5}, "forwards": 30.0}}
    monkeypatch.setattr(experiments, "searches", lambda *given: found)
    publish = experiments.publish
    monkeypatch.setattr(experiments, "publish", lambda place: (publish(place), seen.append(table(tmp_path))))
    asked = ["--only", "base", "self-grpo", "self-grpo-1", "sudoku", "search", "--iterations", "5"]
    for _ in range(2):
        experiments.main(["--model", "m", "--out", str(tmp_path), "--work", str(tmp_path / "work"), *asked])
    assert [(r.seed, r.subject, r.iterations) for r in trained] == [
        (0, "drawings", 5), (1, "drawings", 5), (0, "sudoku", 5)]  # fmt: skip
    assert [sum("(+" in line or "(-" in line for line in lines) for lines in seen[:5]] == [0, 1, 2, 3, 3]
    main_runs = [name for name, experiment in runs.RUNS.items() if not experiment.extra]
    results = json.loads((tmp_path / "results.json").read_text())
    assert [row["run"] for row in results["runs"]] == main_runs
    assert set(results["search"]) == {"base", "self-grpo"} and results["judge"]["letters"] == 0.5
    assert sum("not measured" in line for line in seen[-1]) == len(main_runs) - 3
    assert Image.open(tmp_path / "curves.png").width > 800


def table(out):
    return (out / "table.md").read_text().splitlines()


def test_curves_are_smoothed_without_a_bias_at_the_start():
    assert report.smoothed([3.0] * 5) == pytest.approx([3.0] * 5)
    assert report.smoothed([0.0, 1.0])[-1] == pytest.approx(1 / 1.9)
