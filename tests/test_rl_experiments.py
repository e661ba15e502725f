"""What a difference is worth, and the files the experiments leave."""

import json

import numpy as np
import pytest
from PIL import Image

from dimoo_training.rl import compare, experiments, report
from dimoo_training.rl.recipes import self_grpo


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


def test_real_drawings_and_puzzles_are_judged(tiny):
    tiny.defaults = type(tiny.defaults)(**{**vars(tiny.defaults), "height": 64, "width": 64})
    found, forwards = compare.drawings(tiny, per_kind=1, seeds=(0,), num_inference_steps=2)
    assert {x.shape for x in found.values()} == {(1, 1)} and len(found) == 6 and forwards == 4    # two branches
    assert compare.puzzles(tiny, "sudoku", count=2)["sudoku"].shape == (2, 1)


def test_the_control_gets_as_much_compute():
    recipe = experiments.supervised(self_grpo())
    assert recipe.rule == "sft" and 20 < recipe.sft_batches < 60
    assert recipe.iterations == self_grpo().iterations


def test_every_run_of_the_table_is_a_recipe():
    for name, experiment in experiments.RUNS.items():
        assert experiment.recipe().iterations == 240, name
    assert experiments.RUNS["shuffled"].recipe().shuffled


def test_the_table_is_written_and_what_is_done_is_not_done_again(rng, tmp_path, monkeypatch):
    trained = []

    def align(pipeline, recipe, folder, supervised, log):
        trained.append(recipe)
        folder.mkdir(parents=True)
        lines = [{"step": k, "reward": k / 9, "oracle": k / 18} for k in range(10)]
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def measure(pipeline, experiment, per_kind):
        return {"outcomes": outcomes(rng, 0.5), "forwards": 16.0, "others": {"qa_accuracy": 0.9, "edit_preserved": 0.8}}

    class Loading:
        from_pretrained = staticmethod(lambda folder: None)

    for name, stub in (("align", align), ("measure", measure), ("DiMOOPipeline", Loading)):
        monkeypatch.setattr(experiments, name, stub)
    monkeypatch.setattr(experiments.Rehearsal, "of", lambda *given: None)
    found = {"hierarchical 8": {"scores": {"mean": 0.5}, "forwards": 30.0}}
    monkeypatch.setattr(experiments, "searches", lambda *given: found)
    for _ in range(2):
        asked = ["--only", "self-grpo", "shuffled", "--iterations", "5"]
        experiments.main(["--model", "m", "--out", str(tmp_path), *asked])
    assert [(r.seed, r.shuffled, r.iterations) for r in trained] == [(0, False, 5), (1, False, 5), (0, True, 5)]
    results = json.loads((tmp_path / "results.json").read_text())
    assert [row["run"] for row in results["runs"]] == ["self-grpo", "self-grpo", "shuffled"]
    assert set(results["search"]) == {"before", "after self-grpo"}
    table = (tmp_path / "table.md").read_text().splitlines()
    assert len(table) == 2 + 3 + 1 + 2 + 2 and "+0.0 |" in table[2]
    assert Image.open(tmp_path / "curves.png").width > 800


def test_curves_are_smoothed_without_a_bias_at_the_start():
    assert report.smoothed([3.0] * 5) == pytest.approx([3.0] * 5)
    assert report.smoothed([0.0, 1.0])[-1] == pytest.approx(1 / 1.9)
