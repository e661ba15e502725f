"""Runs of alignment: rewards rise when they mean something, a killed run goes on, and what is wrong stops it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from alignment import DRAWN, MICRO, TOY, Plain, learnable, log_of, quiet, sentences

from dimoo.pipeline import DiMOOPipeline
from dimoo.sampling import EarlyRejection
from dimoo_training import pictures
from dimoo_training import world as w
from dimoo_training.rl import rehearsal, updates
from dimoo_training.rl.judge import Judge
from dimoo_training.rl.rehearsal import Rehearsal
from dimoo_training.rl.rewards import REWARDS
from dimoo_training.rl.subjects import Drawings
from dimoo_training.rl.train import align
from dimoo_training.sft import NotFinite
from dimoo_training.state import load_state

pytestmark = pytest.mark.usefixtures("fresh_accelerate")
WRITTEN = {
    "rule": "grpo", "subject": Plain(part="text"), "rewards": {"even": 1.0}, "scale": "none", "inner": 2,
    "clip": (0.5, 0.5), "beta_text": 0.0,
    "settings": {"num_inference_steps": 4, "temperature": 0.9, "quota": "powers-of-two", "block_length": 16,
                 "reject": EarlyRejection(0.01)},
}  # fmt: skip
METHODS = {
    "self-grpo": {"alpha": 12.0}, "grpo": {"rule": "grpo", "inner": 2}, "cj-grpo": WRITTEN,
    "unigrpo": {"rule": "grpo", "estimator": "random-mask", "level": "sequence", "read_at": (0.0, 0.33, 0.67)},
    "dpo": {"rule": "dpo", "estimator": "shared-noise", "read_at": tuple(k / 8 for k in range(8)), "dpo_beta": 0.5},
}  # fmt: skip


def gain(tiny, tmp_path, **changes):
    """How much the reward rises over a short run: last five rounds against the first five."""
    align(tiny, replace(TOY, **changes), tmp_path, log=quiet)
    rewards = [entry["reward"] for entry in log_of(tmp_path)]
    return float(np.mean(rewards[-5:]) - np.mean(rewards[:5]))


@pytest.fixture(autouse=True)
def mine(monkeypatch):
    learnable(monkeypatch)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_raises_a_reward_that_hangs_on_single_tokens(tiny, tmp_path, name):
    assert gain(tiny, tmp_path, **METHODS[name]) > (0.08 if name == "dpo" else 0.15)


def test_a_shuffled_reward_teaches_nothing(tiny, tmp_path):
    assert abs(gain(tiny, tmp_path, rule="grpo", shuffled=True)) < 0.12


RULES_TRIED = {
    "self-grpo": {}, "live judge": {"judge": "live"}, "words": {"ask": "words", "answered": None},
    "hierarchical": {"rule": "grpo", "emphasis": 1.5},
    "several updates": {"rule": "grpo", "inner": 2}, "random masks": {
        "rule": "grpo", "estimator": "random-mask", "level": "sequence", "inner": 2},
    "from nothing": {"rule": "grpo", "estimator": "fully-masked"},
    "dpo": {"rule": "dpo", "estimator": "shared-noise", "read_at": (0.0, 0.25, 0.5, 0.75)},
    "puzzles": {
        "rule": "grpo", "subject": "sudoku", "rewards": {"turns": 1.0, "sudoku": 1.0}, "read_at": None,
        "settings": {
            "num_inference_steps": 8, "temperature": 0.9, "quota": "powers-of-two", "reject": EarlyRejection(0.01)}},
    "adapters": {"lora": 2, "checkpointing": True},
}  # fmt: skip


@pytest.mark.parametrize("name", RULES_TRIED)
def test_every_rule_runs_and_says_everything(world64, tmp_path, name):
    recipe = replace(MICRO, iterations=1, **RULES_TRIED[name])
    before = {n: p.detach().clone() for n, p in world64.model.named_parameters()}
    align(world64, recipe, tmp_path, log=quiet)
    (entry,) = log_of(tmp_path)
    text = recipe.subject == "sudoku"
    part, measured = ("text", "solved") if text else ("image", "oracle")
    expected = {"reward", "reward_spread", "ties", measured, "grad_norm", f"grad_norm/{part}", "seconds/rollout",
                "seconds/reward", "seconds/update", "entropy/step_00"}  # fmt: skip
    expected |= {f"reward/{name}" for name in recipe.rewards}
    expected |= {"margin"} if recipe.rule == "dpo" else {f"kl_{part}"}
    expected |= {"clipped"} if recipe.rule == "grpo" else set()
    expected |= {"answers_kept"} if recipe.rule == "self-grpo" else set()
    expected |= {"kl_answer", "grad_norm/answer"} if entry.get("answers_kept") else set()
    assert expected <= set(entry), expected - set(entry)
    if recipe.rule != "dpo" and recipe.inner == 1 and recipe.estimator == "trajectory":
        assert entry["ratio_gap_max"] < 1e-3                    # before any update the ratio is 1
        assert entry[f"kl_{part}"] < 1e-4                       # and the policy is the reference
    assert (tmp_path / "sheets" / ("00001.txt" if text else "00001.png")).is_file()
    assert list((tmp_path / "tensorboard").iterdir())
    after = DiMOOPipeline.from_pretrained(tmp_path / "checkpoint").model
    assert {n for n, _ in after.named_parameters()} == set(before)
    if name == "adapters":
        assert all("lora" in n for n in load_state(tmp_path / "state.pt")["trained"])


@pytest.mark.parametrize("rule", ["self-grpo", "grpo", "dpo"])
def test_a_round_without_a_difference_moves_nothing(tiny, tmp_path, monkeypatch, rule):
    monkeypatch.setitem(REWARDS, "mine", lambda samples: [1.0] * len(samples))
    before = {name: p.detach().clone() for name, p in tiny.model.named_parameters()}
    align(tiny, replace(MICRO, rule=rule, subject=Plain(), rewards={"mine": 1.0}, lr=0.1), tmp_path, log=quiet)
    assert all(torch.equal(before[name], p) for name, p in tiny.model.named_parameters())
    assert log_of(tmp_path)[-1]["ties"] == 1.0


def test_continued_supervised_training_is_a_rule(world64, tmp_path):
    recipe = replace(MICRO, rule="sft", sft_batches=3, lr=1e-2, iterations=4, subject=Drawings(limit=None))
    align(world64, recipe, tmp_path, sentences(world64.codec.vocab), log=quiet)
    losses = [entry["sft_loss"] for entry in log_of(tmp_path)]
    assert losses[-1] < losses[0]


def test_rehearsal_is_a_batch_of_every_kind_from_a_book_that_is_made_once(world64, tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsal, "BOOK", {"draw": 3, "edit": 2})
    first = Rehearsal.of(world64, tmp_path, {"draw": 1.0, "edit": 1.0, "answer": 1.0, "puzzle": 1.0})
    monkeypatch.setattr(pictures, "make_book", None)                    # not made again
    again = Rehearsal.of(world64, tmp_path)
    shapes = set()
    for number in range(12):
        batch = first(np.random.default_rng(number))
        shapes.add(tuple(batch["input_ids"].shape))
        assert float(batch["weight"].sum()) > 0
    assert shapes == set(rehearsal.SHAPES.values())
    one, two = (maker(np.random.default_rng(3))["labels"] for maker in (first, Rehearsal(again.maker, first.mix)))
    assert torch.equal(one, two)


def test_another_recipe_cannot_go_on_with_a_run(world64, tiny_folder, tmp_path):
    align(world64, replace(MICRO, iterations=1), tmp_path, log=quiet)
    with pytest.raises(ValueError, match="other parameters"):
        align(DiMOOPipeline.from_pretrained(tiny_folder), replace(MICRO, iterations=2, lora=2), tmp_path, log=quiet)


def test_a_loss_that_is_no_number_stops_the_run_with_its_batch(world64, tmp_path):
    with torch.no_grad():
        world64.model.parts.blocks[0].attn_norm.weight[0] = float("nan")
    recipe = replace(MICRO, judge="live", subject=Plain(), rewards={"turns": 1.0}, answer_share=0.0)
    with pytest.raises(NotFinite, match=r"iteration 0, image: loss nan; requests: .*'two stars'\]; ids of"):
        align(world64, recipe, tmp_path, log=quiet)
    assert not (tmp_path / "state.pt").exists()


@pytest.mark.parametrize(("change", "says"), [
    ({"rule": "ppo"}, "unknown rule 'ppo'.*dpo, grpo, self-grpo, sft"), ({"subject": "songs"}, "drawings"),
    ({"judge": "friend"}, "frozen, live"), ({"ask": "signs"}, "letters, words"),
    ({"settings": DRAWN | {"temperature": 0.0}}, "temperature > 0"),
    ({"settings": DRAWN | {"cache": "max-logit"}}, "cache=None"),
])  # fmt: skip
def test_what_cannot_be_is_told_before_anything_runs(tiny, tmp_path, change, says):
    with pytest.raises(ValueError, match=says):
        align(tiny, replace(MICRO, **change), tmp_path, log=quiet)


@pytest.mark.parametrize(("ask", "said"), [("letters", "b"), ("words", "no")])
def test_learned_answers_are_the_first_words_of_the_right_choice(world64, ask, said):
    """They stand at the first place of the answer, after the picture and the question."""
    vocab, judge = world64.codec.vocab, Judge(world64.model, world64.codec, ask)
    question = w.Question("is there a star?", "no", "absent", ("yes", "no"))
    image = vocab.lay_out(torch.full((8, 8), 3))
    moves = updates.answer_moves(judge, [question], [image], "cpu")
    assert moves.chosen.tolist() == [[world64.codec.text.encode(said)[0]]]
    at = int(moves.where[0, 0, 0])
    assert moves.ids[0, 0, at - 1] == vocab.boa and moves.ids[0, 0, at] == vocab.mask


def test_few_questions_a_picture_are_learned_and_only_open_ones(rng):
    owners, open_ = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([True, True, False, True, True, False])
    for most, count in ((1, 2), (2, 4), (None, 4)):
        some = updates.a_few(open_, owners, most, rng)
        assert len(some) == count == len(set(some)) and bool(open_[some].all())
    assert len({tuple(updates.a_few(open_, owners, 1, rng)) for _ in range(20)}) == 4
    assert updates.a_few(open_ & False, owners, 1, rng) == [0]
