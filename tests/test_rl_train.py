"""Runs of alignment: rewards rise when they mean something, a killed run goes on, and what is wrong stops it."""

import json
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from processes import in_processes

from dimoo.pipeline import DiMOOPipeline
from dimoo.sampling import EarlyRejection
from dimoo.tasks import Ask, TextToImage
from dimoo_training import pictures
from dimoo_training import world as w
from dimoo_training.rl import rehearsal, updates
from dimoo_training.rl.judge import Judge
from dimoo_training.rl.recipes import RLRecipe
from dimoo_training.rl.rehearsal import Rehearsal
from dimoo_training.rl.rewards import REWARDS
from dimoo_training.rl.subjects import Drawings, Request
from dimoo_training.rl.train import align
from dimoo_training.sft import NotFinite
from dimoo_training.state import load_state

pytestmark = pytest.mark.usefixtures("fresh_accelerate")
DRAWN = {"num_inference_steps": 4, "guidance_scale": 0.0, "temperature": 1.0}
MICRO = RLRecipe(
    prompts=2, group=3, iterations=2, settings=DRAWN, read_at=(0.0, 0.5), sft_share=0.0, save_every_seconds=-1,
    sheet_every=1, rewards={"self_confidence": 1.0}, micro_batch=8,
)  # fmt: skip


@dataclass
class Plain:
    """Two prompts without facts: a reward looks at the codes alone."""

    kinds: tuple = ("plain",)
    part: str = "image"
    measure = None

    def draw(self, count, mix, judge, defaults, rng):
        said = ("a circle", "two stars")[:count]
        tasks = [TextToImage(text, 32, 32) if self.part == "image" else Ask(text, length=16) for text in said]
        return [Request(task, "plain", text) for task, text in zip(tasks, said, strict=True)]


def low_codes(samples):
    """Share of codes in the lower half of the codebook."""
    offset = samples.codec.vocab.image_offset
    return [float(np.mean([0 <= i - offset < 32 for i in a.tolist() if i >= offset])) for a in samples.answers]


def even_ids(samples):
    """Share of even ids among the tokens of a text."""
    return [float((answer[1:-1] % 2 == 0).float().mean()) for answer in samples.answers]


def quiet(words):
    pass


def log_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


TOY = replace(
    MICRO, subject=Plain(), rewards={"mine": 1.0}, group=8, iterations=24, lr=3e-3, beta_image=0.0, read_at=None,
    micro_batch=64, norms_by_part=False, sheet_every=99, save_every_seconds=1e9, clip_norm=1.0,
)  # fmt: skip
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
    """Two rewards for random models: one that can be learned, and one that always has a spread."""
    monkeypatch.setitem(REWARDS, "mine", low_codes)
    monkeypatch.setitem(REWARDS, "even", even_ids)
    monkeypatch.setitem(REWARDS, "turns", lambda samples: [k % 2 for k in range(len(samples))])


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


@pytest.fixture
def world64(tiny):
    """A pipeline that draws the world's 64x64 pixels, so that the oracle can look at its drawings."""
    tiny.set_defaults(replace(tiny.defaults, height=64, width=64))
    return tiny


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


def sentences(vocab):
    """A supervised batch, always the same."""
    shape = (2, 12)
    ids, weight = torch.full(shape, vocab.image_offset), torch.zeros(shape)
    weight[:, 3:6] = 1.0
    mask = torch.ones(shape, dtype=torch.bool)
    batch = {"input_ids": ids.masked_fill(weight > 0, vocab.mask), "labels": ids, "weight": weight, "key_mask": mask}
    return lambda rng: batch


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


PROCESS = """
import pickle, sys, time, torch
from pathlib import Path
torch.set_num_threads(1)
from dimoo.pipeline import DiMOOPipeline
from dimoo_training.rl.train import align
model, out = sys.argv[1:]
def log(words):
    if words.startswith("iteration 2"):
        print(words, flush=True)
        time.sleep(600)
align(DiMOOPipeline.from_pretrained(model), pickle.load(sys.stdin.buffer), Path(out), log=log)
"""


def without_times(entries):
    return [{k: v for k, v in entry.items() if "seconds" not in k} for entry in entries]


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tiny_folder, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("def turns(samples):\n    return [k % 2 for k in range(len(samples))]\n")
    recipe = replace(MICRO, iterations=3, subject="sudoku", rule="grpo", read_at=None, rewards={f"{mine}:turns": 1.0},
                     settings={"num_inference_steps": 4, "temperature": 0.9, "quota": "powers-of-two"})  # fmt: skip
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    align(DiMOOPipeline.from_pretrained(tiny_folder), recipe, whole, log=quiet)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", PROCESS, str(tiny_folder), str(killed)]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(pickle.dumps(recipe))
        process.stdin.close()
        heard = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert heard.startswith(b"iteration 2")
    assert load_state(killed / "state.pt")["step"] == 1                 # the second was not saved yet
    align(DiMOOPipeline.from_pretrained(tiny_folder), recipe, killed, log=quiet)
    one, two = (load_state(folder / "state.pt") for folder in (whole, killed))
    assert one["step"] == two["step"] == 3 and one["success"] == two["success"]
    for part in ("trained", "ema"):
        assert all(torch.equal(value, two[part][name]) for name, value in one[part].items())
    assert without_times(log_of(whole)) == without_times(log_of(killed))
    start = DiMOOPipeline.from_pretrained(tiny_folder).model.state_dict()
    assert any(not torch.equal(value, start[name]) for name, value in one["trained"].items())


# Several processes


def first_only(samples):
    """A spread in the first process alone: the others have nothing to learn from, and still have to keep pace."""
    return [k % 2 if os.environ["RANK"] == "0" else 1.0 for k in range(len(samples))]


def aligned(recipe, folder, out, dies=False):
    """A run in one of several processes, which leaves the weights it ends with; or the first dies in round two."""
    REWARDS["first only"] = first_only

    def log(words):
        if dies and words.startswith("iteration 2"):
            os._exit(9)

    pipeline = DiMOOPipeline.from_pretrained(folder)
    align(pipeline, recipe, out, sentences(pipeline.codec.vocab) if recipe.sft_share else None, log)
    if not recipe.shards:
        torch.save(pipeline.model.state_dict(), out / f"{os.environ['RANK']}.pt")


def weights_of(out, rank):
    return torch.load(out / f"{rank}.pt")


def same_weights(one, two):
    return all(torch.equal(value, two[name]) for name, value in one.items())


SEVERAL = {
    "self-grpo": {"subject": "drawings", "read_at": (0.0, 0.5), "micro_batch": 2, "norms_by_part": True},
    "grpo": {"rule": "grpo", "inner": 2, "micro_batch": 2},
    "dpo": {"rule": "dpo", "estimator": "shared-noise", "read_at": (0.0, 0.5)},
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_two_processes_learn_the_same_though_one_has_nothing_to_learn_from(world64, tmp_path, name):
    folder, out = tmp_path / "start", tmp_path / "out"
    world64.save_pretrained(folder)
    recipe = replace(TOY, iterations=2, group=3, rewards={"first only": 1.0}, **SEVERAL[name])
    assert in_processes(2, aligned, recipe, folder, out) == [0, 0]
    one, two = (weights_of(out, rank) for rank in (0, 1))
    assert same_weights(one, two) and not same_weights(one, world64.model.state_dict())
    assert log_of(out)[-1]["ties"] == 0.5                               # over both


def test_two_processes_that_were_killed_go_on(tiny_folder, tmp_path):
    recipe = replace(TOY, iterations=3, group=4, save_every_seconds=-1)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert in_processes(2, aligned, recipe, tiny_folder, whole) == [0, 0]
    dead, orphan = in_processes(2, aligned, recipe, tiny_folder, killed, True)
    assert dead == 9 and orphan != 0
    assert load_state(killed / "state.pt")["step"] < 3
    assert in_processes(2, aligned, recipe, tiny_folder, killed) == [0, 0]
    assert same_weights(weights_of(whole, 0), weights_of(killed, 1))
    assert without_times(log_of(whole)) == without_times(log_of(killed))


@pytest.mark.parametrize("change", [{}, {"lora": 4}], ids=["all", "adapters"])
def test_shards_learn_as_whole_weights_do_and_go_on_after_a_kill(tiny_folder, tmp_path, change):
    recipe = replace(
        TOY, iterations=3, group=4, save_every_seconds=-1, rewards={"turns": 1.0}, sft_share=0.5, beta_image=0.1,
        norms_by_part=True, **change,
    )  # fmt: skip
    whole, shards, killed = (tmp_path / name for name in ("whole", "shards", "killed"))
    assert in_processes(2, aligned, recipe, tiny_folder, whole) == [0, 0]
    sharded = replace(recipe, shards=True)
    assert in_processes(2, aligned, sharded, tiny_folder, shards) == [0, 0]
    for name in ("reward", "sft_loss", "kl_image", "grad_norm", "grad_norm/image"):
        one, two = ([entry[name] for entry in log_of(folder)] for folder in (whole, shards))
        assert one == pytest.approx(two, rel=2e-2, abs=1e-4), name
    ends = [DiMOOPipeline.from_pretrained(folder / "checkpoint").model.state_dict() for folder in (whole, shards)]
    assert all(torch.allclose(value, ends[1][name], atol=2e-2) for name, value in ends[0].items())
    dead, orphan = in_processes(2, aligned, sharded, tiny_folder, killed, True)
    assert dead == 9 and orphan != 0
    assert in_processes(2, aligned, sharded, tiny_folder, killed) == [0, 0]
    assert without_times(log_of(killed)) == without_times(log_of(shards))
    again = DiMOOPipeline.from_pretrained(killed / "checkpoint").model.state_dict()
    assert same_weights(again, ends[1])


def test_saving_a_checkpoint_with_adapters_changes_nothing(tiny_folder, tmp_path):
    recipe = replace(MICRO, iterations=2, lora=2, subject=Plain(), rewards={"turns": 1.0}, lr=1e-2)
    for name, seconds in (("often", -1), ("once", 1e9)):
        align(DiMOOPipeline.from_pretrained(tiny_folder), replace(recipe, save_every_seconds=seconds), tmp_path / name,
              log=quiet)  # fmt: skip
    often, once = (load_state(tmp_path / name / "state.pt")["trained"] for name in ("often", "once"))
    assert same_weights(often, once)


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
