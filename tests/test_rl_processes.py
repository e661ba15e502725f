"""Runs of alignment that are killed, that share the work among processes, and that save while they run."""

import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from alignment import MICRO, TOY, Plain, learnable, log_of, quiet, sentences, without_times
from processes import in_processes

from dimoo.pipeline import DiMOOPipeline
from dimoo_training.rl.rewards import REWARDS
from dimoo_training.rl.train import align
from dimoo_training.state import load_state

pytestmark = pytest.mark.usefixtures("fresh_accelerate")


@pytest.fixture(autouse=True)
def mine(monkeypatch):
    learnable(monkeypatch)


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
