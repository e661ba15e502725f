"""Supervised training: the loss, and runs that go on after a kill as if nothing had happened."""

import json
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from diffusers import VQModel

from dimoo.model import LLaDAConfig, LLaDAForMultiModalGeneration
from dimoo.pipeline import DiMOOPipeline
from dimoo.text import TextTokenizer
from dimoo_training import checkpoint, commands, sft
from dimoo_training import state as storage
from dimoo_training import world as w
from dimoo_training.examples import ExampleMaker
from dimoo_training.optimiser import Optimiser, warmup_then_decay
from dimoo_training.pictures import make_book
from dimoo_training.recipes import RECIPES, SFTRecipe, debug
from dimoo_training.words import build_tokenizer
from tokenizers_vq import ToyImageTokenizer

SHAPE = {"n_heads": 4, "n_layers": 2, "rope_theta": 1000.0, "qk_norm": True, "max_sequence_length": 512}
MICRO = SFTRecipe(
    shape=SHAPE | {"d_model": 32, "mlp_hidden_size": 64}, captions=30, edits=20,
    batch={"draw": 2, "edit": 2, "answer": 2}, steps=6, compile=False, save_every_seconds=-1, log_every=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def maker():
    tokenizer, images = build_tokenizer(samples=300), ToyImageTokenizer()
    vocab, world = sft.read_vocab(tokenizer, images.codebook_size), w.WORLDS["first"]
    book = make_book(world, 30, 30, images, np.random.default_rng(0))
    return ExampleMaker(TextTokenizer(tokenizer, vocab), vocab, book, world)


def new_model(vocab, width, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LLaDAForMultiModalGeneration(LLaDAConfig(
            **SHAPE, d_model=width, mlp_hidden_size=2 * width, vocab_size=vocab.size, mask_token_id=vocab.mask,
        ))  # fmt: skip


def same(one, two):
    """Whether two nested states are equal, tensors to the bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


# The loss


@pytest.mark.parametrize("kind", ["draw", "edit", "answer"])
def test_the_loss_is_the_weighted_cross_entropy_of_hidden_tokens(maker, kind):
    model = new_model(maker.vocab, 64)
    batch = maker.batch(kind, 6, 180, np.random.default_rng(1))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        loss = sft.masked_loss(model, batch)
        logits = model(batch["input_ids"], batch["key_mask"]).logits
    logs = logits.double().log_softmax(-1)
    total = weights = 0.0
    for row, at in (batch["input_ids"] == maker.vocab.mask).nonzero().tolist():
        weight = float(batch["weight"][row, at])
        total -= weight * float(logs[row, at, batch["labels"][row, at]])
        weights += weight
    assert abs(float(loss) - total / weights) < 1e-3
    assert abs(float(loss) - np.log(maker.vocab.size)) < 0.5        # a new model knows nothing


def test_padding_does_not_change_the_loss(maker):
    model, rng = new_model(maker.vocab, 64), np.random.default_rng(2)
    batch = maker.batch("answer", 4, 160, rng)
    longer = {
        name: F.pad(value, (0, 40), value=fill)
        for (name, value), fill in zip(batch.items(), (maker.vocab.boi, maker.vocab.boi, 0, False), strict=True)
    }
    losses = [sft.masked_loss(model, b).item() for b in (batch, longer)]
    assert abs(losses[0] - losses[1]) < 1e-3


def test_every_part_of_the_model_learns(maker):
    model = new_model(maker.vocab, 64)
    sft.masked_loss(model, maker.batch("edit", 2, 180, np.random.default_rng(0))).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]


def test_a_small_model_learns_eight_examples_by_heart(maker):
    model = new_model(maker.vocab, 64)
    optimiser, rng = Optimiser(model, 0.01), np.random.default_rng(4)
    wanted = {"draw": (3, 112), "edit": (2, 176), "answer": (3, 120)}
    batches = [maker.batch(kind, *size, rng) for kind, size in wanted.items()]
    for step in range(150):
        losses = [sft.masked_loss(model, batch) for batch in batches]
        sum(losses).backward()
        optimiser.step(warmup_then_decay(step / 150))
        if max(losses) < 0.1:
            break
    assert max(losses) < 0.1, [loss.item() for loss in losses]


# Runs


class Killed(Exception):
    pass


def kill(*_, **__):
    raise Killed


def killed_at(step):
    """A log that ends the run when it hears of `step`: before that step is saved."""
    return lambda words: kill() if words.startswith(f"{{'step': {step},") else None


@pytest.fixture
def vq_folder(tiny_folder):
    return tiny_folder / "vqvae"


@pytest.fixture
def record(monkeypatch):
    """(ids, loss) of every batch that a run sees; runs get a tokenizer that is built in no time."""
    seen, loss = [], sft.masked_loss

    def recorded(model, batch):
        value = loss(model, batch)
        seen.append((batch["input_ids"].clone(), value.item()))
        return value

    monkeypatch.setattr(sft, "masked_loss", recorded)
    monkeypatch.setattr(sft, "build_tokenizer", lambda: build_tokenizer(samples=300))
    return seen


def quiet(words):
    pass


def logged(folder):
    """{step: what was logged}, without times; a step that was repeated must have given the same."""
    found = {}
    for line in (folder / "log.jsonl").read_text().splitlines():
        entry = json.loads(line)
        del entry["seconds_per_step"]
        assert found.setdefault(entry["step"], entry) == entry
    return found


PROCESS = """
import pickle, sys, time, torch
from dimoo_training import sft
from dimoo_training.words import build_tokenizer
torch.set_num_threads(1)
sft.build_tokenizer = lambda: build_tokenizer(samples=300)
def log(words):
    if words.startswith("{'step': 3,"):
        print(words, flush=True)
        time.sleep(600)
sft.train(*pickle.loads(sys.stdin.buffer.read()), log=log)
"""


def run_and_kill(*given):
    """Start `sft.train` in a process of its own and kill that in its third step."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "12345"}
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdin.write(pickle.dumps(given))
        process.stdin.close()
        heard = process.stdout.readline()
        process.kill()
    assert heard and process.returncode == -signal.SIGKILL


def test_a_killed_run_goes_on_as_if_nothing_had_happened(record, vq_folder, tmp_path):
    whole = sft.train(MICRO, vq_folder, tmp_path / "whole", log=quiet)
    expected, killed = record[:], tmp_path / "killed"
    record.clear()
    run_and_kill(MICRO, vq_folder, killed)
    assert storage.load_state(killed / "state.pt")["step"] == 2
    with pytest.raises(Killed):
        sft.train(MICRO, vq_folder, killed, log=killed_at(5))
    resumed = sft.train(MICRO, vq_folder, killed, log=quiet)
    assert len(expected) == 6 * 3
    assert same(record, expected[2 * 3 : 5 * 3] + expected[4 * 3 :])        # the lost step is made again
    assert same(resumed.state_dict(), whole.state_dict())
    assert same(*(storage.load_state(folder / "state.pt") for folder in (tmp_path / "whole", killed)))
    assert list(logged(killed)) == [1, 2, 3, 4, 5, 6]
    assert logged(killed) == logged(tmp_path / "whole")


def test_a_run_learns_and_is_repeatable_by_its_seed(record, vq_folder, tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        sft.train(replace(MICRO, steps=2, seed=seed), vq_folder, tmp_path / name, log=quiet)
    first = [ids for ids, _ in record[:6:3]]
    other = [ids for ids, _ in record[6::3]]
    assert not same(first, other)                                   # seeds differ, so does the data
    assert not same(first[0], first[1])                             # and so do the steps
    states = [storage.load_state(tmp_path / name / "state.pt")["model"] for name in "ab"]
    assert not any(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_the_pictures_of_a_run_are_made_once(vq_folder, tmp_path, monkeypatch):
    vq, world, made = VQModel.from_pretrained(vq_folder), w.WORLDS["first"], []
    monkeypatch.setattr(sft, "make_book", lambda *given: made.append(1) or make_book(*given))
    book = sft.open_book(tmp_path / "book", MICRO, world, vq)
    again = sft.open_book(tmp_path / "book", replace(MICRO, steps=9, lr=1.0), world, vq)
    assert len(made) == 1
    assert again.captions == book.captions and again.edits == book.edits and again.scenes == book.scenes
    assert (again.codes == book.codes).all()
    sft.open_book(tmp_path / "book", replace(MICRO, seed=5), world, vq)
    assert len(made) == 2
    vq.quantize.embedding.weight.data[0] += 1                       # other codes: the old ones mean nothing
    sft.open_book(tmp_path / "book", replace(MICRO, seed=5), world, vq)
    assert len(made) == 3


def test_the_checkpoint_has_the_best_weights(record, vq_folder, tmp_path, monkeypatch):
    """By the smoothed loss, also over a kill."""
    loss, written = sft.masked_loss, []
    course = iter([5.0, 4.0, 3.0, 9.0, 9.0, 9.0, 9.0])              # a step each; the fifth is lost and made again
    now = [0.0]

    def staged(model, batch):
        if len(record) % 3 == 0:
            now[0] = next(course)
        return loss(model, batch) * 0 + now[0]

    monkeypatch.setattr(sft, "masked_loss", staged)
    monkeypatch.setattr(sft, "assemble", lambda *_: written.append(len(record) // 3))
    with pytest.raises(Killed):
        sft.train(MICRO, vq_folder, tmp_path, log=killed_at(5))
    sft.train(MICRO, vq_folder, tmp_path, log=quiet)
    assert written == [1, 2, 3]


def test_a_run_killed_between_its_last_two_files_still_ends_in_a_checkpoint(
    record, vq_folder, tmp_path, monkeypatch
):
    monkeypatch.setitem(RECIPES, "debug", lambda: replace(MICRO, steps=2, save_every_seconds=1e9))
    with monkeypatch.context() as patch:
        patch.setattr(LLaDAForMultiModalGeneration, "save_pretrained", kill)
        with pytest.raises(Killed):
            commands.sft("debug", vq_folder, tmp_path)
    assert storage.load_state(tmp_path / "state.pt")["step"] == 2
    commands.sft("debug", vq_folder, tmp_path)
    DiMOOPipeline.from_pretrained(tmp_path / "checkpoint")


def test_the_checkpoint_is_the_trained_model(record, vq_folder, tmp_path, photo):
    model = sft.train(MICRO, vq_folder, tmp_path, log=quiet)
    model = model.to(torch.bfloat16).to(torch.float32)  # as the checkpoint keeps it
    pipeline = DiMOOPipeline.from_pretrained(tmp_path / "checkpoint")
    pipeline.set_progress_bar_config(disable=True)
    assert pipeline.defaults == checkpoint.DEFAULTS
    assert same(pipeline.model.state_dict(), model.state_dict())
    ids = record[-1][0]
    with torch.no_grad():
        assert torch.equal(pipeline.model(ids).logits, model.eval()(ids).logits)
    assert pipeline.codec.vocab == sft.read_vocab(build_tokenizer(samples=300), 64)
    trained = TextTokenizer(build_tokenizer(samples=300), pipeline.codec.vocab)
    for text in ("a red circle above a star.", "what is THIS? 12 x", "</answer> a"):
        assert same(pipeline.codec.text.conditions("edit", text), trained.conditions("edit", text))
    assert pipeline.generate("a red circle", seed=0, num_inference_steps=2).images[0].size == (64, 64)
    assert isinstance(pipeline.ask("what color is it?", photo, seed=0, num_inference_steps=4).texts[0], str)


def test_recipes_build_their_models(maker):
    tokenizer = maker.text.tokenizer
    sizes = {}
    for name, recipe in RECIPES.items():
        config = recipe().model_config(maker.vocab, tokenizer)
        assert (config.vocab_size, config.image_token_offset) == (maker.vocab.size, maker.vocab.image_offset)
        with torch.device("meta"):
            sizes[name] = sum(p.numel() for p in LLaDAForMultiModalGeneration(config).parameters())
    assert sizes["debug"] < 3e5 < 3e6 < sizes["tiny"] < 1e7
    lengths = debug().lengths
    rng = np.random.default_rng(0)
    for kind, length in lengths.items():                            # most examples are short enough
        assert np.mean([len(maker.kinds[kind](rng).ids) <= length for _ in range(100)]) > 0.8


def test_a_kill_while_saving_leaves_the_state_before(tmp_path, monkeypatch):
    path = tmp_path / "run" / "state.pt"
    storage.save_state(path, {"step": 1})

    def cut(state, target):
        target.write_bytes(b"half a fi")
        kill()

    monkeypatch.setattr(torch, "save", cut)
    with pytest.raises(Killed):
        storage.save_state(path, {"step": 2})
    assert storage.load_state(path) == {"step": 1}
