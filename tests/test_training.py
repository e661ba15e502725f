"""Supervised training: the loss, and runs that go on after a kill as if nothing had happened."""

import json
import os
import signal
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dimoo.model import LLaDAConfig, LLaDAForMultiModalGeneration
from dimoo.pipeline import DiMOOPipeline
from dimoo.text import TextTokenizer
from dimoo_training import checkpoint, placement, sft
from dimoo_training import pictures as books
from dimoo_training import state as storage
from dimoo_training import world as w
from dimoo_training.examples import ExampleMaker
from dimoo_training.notes import Notes
from dimoo_training.objective import MaskedLoss
from dimoo_training.optimiser import Optimiser, warmup_then_decay
from dimoo_training.pictures import make_book
from dimoo_training.recipes import RECIPES, SFTRecipe
from dimoo_training.snapshot import snapshot
from dimoo_training.words import build_tokenizer
from tokenizers_vq import ToyImageTokenizer

SHAPE = {"n_heads": 4, "n_layers": 2, "rope_theta": 1000.0, "qk_norm": True, "max_sequence_length": 512}
MICRO = SFTRecipe(
    shape=SHAPE | {"d_model": 32, "mlp_hidden_size": 64}, books={"first": {"draw": 6, "edit": 4, "style": 3}},
    always={"draw": (2, 100), "answer": (1, 184)}, in_turn={"edit": (1, 172), "style": (1, 232)}, steps=6,
    compile=False, save_every_seconds=-1, log_every=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def maker():
    tokenizer, images = build_tokenizer(samples=60), ToyImageTokenizer()
    vocab = checkpoint.new_vocab(tokenizer, images.codebook_size)
    book = make_book(w.WORLDS["first"], MICRO.books["first"], images, np.random.default_rng(0))
    return ExampleMaker(TextTokenizer(tokenizer, vocab), vocab, {"first": book})


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
    model = new_model(maker.vocab, 32)
    batch = maker.batch(kind, 3, 200, np.random.default_rng(1))
    with torch.no_grad():
        loss, each = MaskedLoss(model)(batch)
        logs = model(batch["input_ids"], batch["key_mask"]).logits.double().log_softmax(-1)
    sums, weights = defaultdict(float), defaultdict(float)
    for row, at in (batch["input_ids"] == maker.vocab.mask).nonzero().tolist():
        weight = float(batch["weight"][row, at])
        sums[row] -= weight * float(logs[row, at, batch["labels"][row, at]])
        weights[row] += weight
    assert float(loss) == pytest.approx(sum(sums.values()) / sum(weights.values()), abs=1e-4)
    assert each.tolist() == pytest.approx([sums[row] / weights[row] for row in range(3)], abs=1e-4)
    assert abs(float(loss) - np.log(maker.vocab.size)) < 0.5        # a new model knows nothing


def test_padding_does_not_change_the_loss_and_every_part_learns(maker):
    model, rng = new_model(maker.vocab, 32), np.random.default_rng(2)
    batch = maker.batch("edit", 2, 172, rng)
    fill = {"input_ids": maker.vocab.boi, "labels": maker.vocab.boi, "weight": 0, "key_mask": False}
    longer = {name: F.pad(value, (0, 40), value=fill[name]) if name in fill else value for name, value in batch.items()}
    losses = [MaskedLoss(model)(b)[0] for b in (batch, longer)]
    assert abs(losses[0] - losses[1]) < 1e-4
    losses[0].backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]


def test_a_small_model_learns_a_few_examples_by_heart(maker):
    model = new_model(maker.vocab, 32)
    objective, optimiser, rng = MaskedLoss(model), Optimiser(model, 0.02), np.random.default_rng(4)
    batches = [maker.batch("draw", 2, 100, rng), maker.batch("answer", 1, 120, rng)]
    for step in range(150):
        losses = [objective(batch)[0] for batch in batches]
        sum(losses).backward()
        optimiser.step(warmup_then_decay(step / 150))
        if max(losses) < 0.3:
            break
    assert max(losses) < 0.3, [loss.item() for loss in losses]


# Runs


@pytest.fixture
def vq_folder(tiny_folder):
    return tiny_folder / "vqvae"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Runs get a tokenizer that is built in no time."""
    made = build_tokenizer(samples=20)
    monkeypatch.setattr(sft, "build_tokenizer", lambda: made)


@pytest.fixture
def record(monkeypatch):
    """(ids, loss) of every batch that a run sees."""
    seen = []

    class Recorded(MaskedLoss):
        def forward(self, batch):
            loss, each = super().forward(batch)
            seen.append((batch["input_ids"].clone(), loss.item()))
            return loss, each

    monkeypatch.setattr(placement, "MaskedLoss", Recorded)
    return seen


def quiet(words):
    pass


def logged(folder):
    """{step: what was logged}, without times."""
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return {entry.pop("step"): {k: v for k, v in entry.items() if k != "seconds_per_step"} for entry in entries}


def killed(step, *given):
    """Run `sft.train` in a process of its own, and kill that when it did `step`, before it saves."""
    pid = os.fork()
    if pid == 0:
        turn = Notes.turn

        def last(notes, now, **numbers):
            turn(notes, now, **numbers)
            if now == step:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            Notes.turn = last
            sft.train(*given, log=quiet)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_a_killed_run_goes_on_as_if_nothing_had_happened(record, vq_folder, tmp_path):
    """At a step in the middle, and at the last; also as regards the log."""
    for step in (3, 6):
        killed(step, MICRO, vq_folder, tmp_path / f"killed-{step}")
    whole = sft.train(MICRO, vq_folder, tmp_path / "whole", log=quiet)
    expected = record[:]
    assert len(expected) == 6 * 3
    for step in (3, 6):
        folder = tmp_path / f"killed-{step}"
        assert storage.load_state(folder / "state.pt")["step"] == step - 1
        record.clear()
        resumed = sft.train(MICRO, vq_folder, folder, log=quiet)
        assert same(record, expected[(step - 1) * 3 :])                 # the lost step is made again
        assert same(resumed.state_dict(), whole.state_dict())
        assert same(*(storage.load_state(f / "state.pt") for f in (tmp_path / "whole", folder)))
        assert list(logged(folder)) == [1, 2, 3, 4, 5, 6] and logged(folder) == logged(tmp_path / "whole")


def test_a_run_left_early_is_a_snapshot_of_the_whole_one(record, vq_folder, tmp_path):
    """Same schedule, same batches, same weights; and the whole run can go on from there."""
    early = replace(MICRO, until=3)
    sft.train(early, vq_folder, tmp_path / "early", log=quiet)
    assert snapshot(tmp_path / "early", tmp_path / "kept") == 3
    sft.train(MICRO, vq_folder, tmp_path / "early", log=quiet)
    sft.train(MICRO, vq_folder, tmp_path / "whole", log=quiet)
    states = [storage.load_state(tmp_path / name / "state.pt") for name in ("early", "whole")]
    assert states[0]["step"] == 6 and same(*states)
    sft.train(early, vq_folder, tmp_path / "again", log=quiet)
    kept, again = (DiMOOPipeline.from_pretrained(tmp_path / name / "checkpoint") for name in ("kept", "again"))
    assert same(kept.model.state_dict(), again.model.state_dict()) and kept.defaults == again.defaults
    assert json.loads((tmp_path / "kept" / "snapshot.json").read_text())["step"] == 3
    with pytest.raises(ValueError, match=r"no run.*state\.pt"):
        snapshot(tmp_path, tmp_path / "kept")


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_the_last_state(record, vq_folder, tmp_path, monkeypatch):
    forward = MaskedLoss.forward

    def broken(objective, batch):
        loss, each = forward(objective, batch)
        return (loss * float("nan") if len(record) == 3 * 2 + 1 else loss), each

    monkeypatch.setattr(MaskedLoss, "forward", broken)
    with pytest.raises(sft.NotFinite, match=r"step 2, answer: loss nan; ids of the batch: \[\["):
        sft.train(MICRO, vq_folder, tmp_path / "run", log=quiet)
    saved = storage.load_state(tmp_path / "run" / "state.pt")
    assert saved["step"] == 2 and all(value.isfinite().all() for value in saved["model"].values())
    DiMOOPipeline.from_pretrained(tmp_path / "run" / "checkpoint")


def test_a_run_is_repeatable_by_its_seed(record, vq_folder, tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        sft.train(replace(MICRO, steps=2, seed=seed, save_every_seconds=1e9), vq_folder, tmp_path / name, log=quiet)
    first, other = [ids for ids, _ in record[:6:3]], [ids for ids, _ in record[6::3]]
    assert not same(first, other) and not same(first[0], first[1])      # seeds differ, and so do the steps
    states = [storage.load_state(tmp_path / name / "state.pt")["model"] for name in "ab"]
    assert not any(torch.equal(value, states[1][name]) for name, value in states[0].items() if value.dim() > 1)


def test_the_checkpoint_is_the_averaged_model(record, vq_folder, tmp_path, photo):
    recipe = replace(MICRO, steps=3, save_every_seconds=1e9)
    model = sft.train(recipe, vq_folder, tmp_path, log=quiet)
    average = storage.load_state(tmp_path / "state.pt")["ema"]
    pipeline = DiMOOPipeline.from_pretrained(tmp_path / "checkpoint")
    pipeline.set_progress_bar_config(disable=True)
    assert pipeline.defaults == checkpoint.DEFAULTS
    kept = dict(pipeline.model.named_parameters())
    assert same({name: value.to(torch.bfloat16).float() for name, value in average.items()}, kept)
    assert not same(dict(model.named_parameters()), average)
    assert pipeline.generate("a red circle", seed=0, num_inference_steps=1).images[0].size == (64, 64)
    assert isinstance(pipeline.ask("what color is it?", photo, seed=0, num_inference_steps=1).texts[0], str)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint", "log.jsonl", "pictures-first.pkl", "state.pt", "tensorboard",
    ]  # fmt: skip


def test_the_pictures_of_a_run_are_made_once(vq_folder, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(books, "make_book", lambda *given: made.append(1) or make_book(*given))
    path = tmp_path / "book"
    book = books.open_book(path, "first", MICRO, vq_folder)
    again = books.open_book(path, "first", replace(MICRO, steps=9, lr=1.0), vq_folder)
    assert len(made) == 1 and again.records == book.records and again.pictures == book.pictures
    assert (again.codes == book.codes).all()
    books.open_book(path, "first", replace(MICRO, seed=5), vq_folder)
    assert len(made) == 2
    codebook = checkpoint.codebook_of(vq_folder)
    monkeypatch.setattr(books, "codebook_of", lambda folder: codebook + 1)      # other codes: the old ones mean nothing
    books.open_book(path, "first", replace(MICRO, seed=5), vq_folder)
    assert len(made) == 3
    with pytest.raises(ValueError, match=r"of 64 pixels a side, the recipe's pictures have 128"):
        books.open_book(tmp_path / "large", "first", replace(MICRO, scale=2), vq_folder)


def test_recipes_build_their_models(maker):
    sizes = {}
    for name, recipe in RECIPES.items():
        config = recipe().model_config(maker.vocab, maker.text.tokenizer)
        assert (config.vocab_size, config.image_token_offset) == (maker.vocab.size, maker.vocab.image_offset)
        with torch.device("meta"):
            sizes[name] = sum(p.numel() for p in LLaDAForMultiModalGeneration(config).parameters())
    assert sizes["debug"] < 3e5 < 3e6 < sizes["tiny"] == sizes["tiny-base"] < 1e7 < 2.5e7 < sizes["small"] < 3.5e7
    assert RECIPES["tiny-base"]() == replace(RECIPES["tiny"](), until=RECIPES["tiny-base"]().until)


def test_a_kill_while_saving_leaves_the_state_before(tmp_path, monkeypatch):
    path = tmp_path / "run" / "state.pt"
    storage.save_state(path, {"step": 1})

    def cut(state, target):
        target.write_bytes(b"half a fi")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        storage.save_state(path, {"step": 2})
    assert storage.load_state(path) == {"step": 1}
