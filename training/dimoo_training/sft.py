"""Supervised training of dimoo-tiny, top to bottom: pictures -> examples -> loss -> update -> checkpoint.

The loss is masked cross-entropy as in Lumina-DiMOO (exact-count cosine masking, no 1/t), with one change: tokens of
objects, and in edits the tokens that change, weigh more than background. Each kind of example is normalised by its
own weight, so one kind cannot outvote another. A run killed at any moment continues from its last state.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import VQModel
from torch import Tensor

from dimoo.model.llada import LLaDAForMultiModalGeneration
from dimoo.text import TextTokenizer
from dimoo.vocab import TOKEN_STRINGS, Vocab
from dimoo_training import world as w
from dimoo_training.checkpoint import assemble
from dimoo_training.examples import ExampleMaker
from dimoo_training.optimiser import Optimiser, warmup_then_decay
from dimoo_training.pictures import PictureBook, make_book
from dimoo_training.recipes import SFTRecipe
from dimoo_training.state import load_state, save_state
from dimoo_training.words import build_tokenizer
from tokenizers_vq import VQImageTokenizer


def masked_loss(model: LLaDAForMultiModalGeneration, batch: dict[str, Tensor]) -> Tensor:
    """sum(w * ce) / sum(w) over masked positions; logits are computed for those only."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.hidden(batch["input_ids"], batch["key_mask"], None, None)        # (B, L, D)
        at = batch["weight"] > 0                                                        # (B, L)
        logits = model.logits(hidden[at])                                               # (n, V)
    losses = F.cross_entropy(logits.float(), batch["labels"][at], reduction="none")
    weight = batch["weight"][at]
    return (losses * weight).sum() / weight.sum()


def read_vocab(tokenizer, codebook_size: int) -> Vocab:
    """The vocabulary of a new model: the tokenizer's ids, then the image codes, last."""
    known = tokenizer.get_vocab()
    ids = {role: known[strings[0]] for role, strings in TOKEN_STRINGS.items()}
    offset = max(known.values()) + 1
    return Vocab(**ids, image_offset=offset, codebook_size=codebook_size, size=offset + codebook_size)


def open_book(path: Path, recipe: SFTRecipe, world: w.World, vq: VQModel) -> PictureBook:
    """The run's pictures: from disk when they are there and of this recipe and tokenizer, else made and kept."""
    codebook = vq.quantize.embedding.weight.detach().numpy().tobytes()
    made_of = (world, recipe.captions, recipe.edits, recipe.seed, hashlib.sha256(codebook).hexdigest())
    if path.exists() and (book := pickle.loads(path.read_bytes())).made_of == made_of:
        return book
    rng = np.random.default_rng([recipe.seed, 1])
    book = make_book(world, recipe.captions, recipe.edits, VQImageTokenizer(vq.eval()), rng)
    book.made_of = made_of
    book.save(path)
    return book


class Run:
    """Everything that changes during training, so that it can be saved and restored as one."""

    def __init__(self, model: LLaDAForMultiModalGeneration, optimiser: Optimiser, seed: int):
        self.model, self.optimiser, self.step = model, optimiser, 0
        self.rng = np.random.default_rng([seed, 2])
        self.recent, self.best = float("inf"), float("inf")
        """Smoothed sum of the losses of all kinds: now, and when the weights were last written."""

    def note(self, total: float) -> None:
        self.recent = total if self.step == 0 else 0.98 * self.recent + 0.02 * total
        self.step += 1

    def save(self, path: Path) -> None:
        save_state(path, {
            "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "step": self.step,
            "rng": self.rng.bit_generator.state, "recent": self.recent, "best": self.best,
        })  # fmt: skip

    def restore(self, path: Path) -> None:
        state = load_state(path)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.recent, self.best = state["step"], state["recent"], state["best"]
        self.rng.bit_generator.state = state["rng"]


def train(recipe: SFTRecipe, vq_folder: Path, out: Path, log=print) -> LLaDAForMultiModalGeneration:
    """Train to `recipe.steps`, continuing from `out/state.pt` when it is there.

    Writes out/state.pt every few minutes, a loadable out/checkpoint when the smoothed loss is the best so far, and
    a line of JSON per log to out/log.jsonl.
    """
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    vq = VQModel.from_pretrained(vq_folder)
    world = w.WORLDS[recipe.world]
    tokenizer = build_tokenizer()
    vocab = read_vocab(tokenizer, vq.config.num_vq_embeddings)
    book = open_book(out / "pictures.pkl", recipe, world, vq)
    maker = ExampleMaker(TextTokenizer(tokenizer, vocab), vocab, book, world)

    model = LLaDAForMultiModalGeneration(recipe.model_config(vocab, tokenizer))
    run = Run(model, Optimiser(model, recipe.lr), recipe.seed)
    if (out / "state.pt").exists():
        run.restore(out / "state.pt")
    if recipe.compile:
        for block in model.parts.blocks:
            block.compile(dynamic=False)
    log(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters, {len(book.scenes)} pictures, "
        f"from step {run.step} of {recipe.steps}")

    def keep() -> None:
        better = run.recent <= run.best
        run.best = min(run.best, run.recent)
        run.save(out / "state.pt")
        if better:
            assemble(model, tokenizer, vq, out / "checkpoint")

    seen: dict[str, list[float]] = {kind: [] for kind in recipe.batch}
    started, saved, first = time.time(), time.time(), run.step
    model.train()
    while run.step < recipe.steps:
        for kind, count in recipe.batch.items():
            loss = masked_loss(model, maker.batch(kind, count, recipe.lengths[kind], run.rng))
            loss.backward()
            seen[kind].append(loss.item())
        norm = run.optimiser.step(warmup_then_decay(run.step / recipe.steps))
        run.note(sum(losses[-1] for losses in seen.values()))
        if run.step % recipe.log_every == 0:
            means = {kind: round(float(np.mean(losses)), 4) for kind, losses in seen.items()}
            rate = (time.time() - started) / (run.step - first)
            entry = {"step": run.step, **means, "grad_norm": round(norm, 3), "seconds_per_step": round(rate, 3)}
            with (out / "log.jsonl").open("a") as lines:
                lines.write(json.dumps(entry) + "\n")
            log(f"{entry}  {(recipe.steps - run.step) * rate / 60:.0f} minutes left")
            seen = {kind: [] for kind in recipe.batch}
        if time.time() - saved > recipe.save_every_seconds:
            keep()
            saved = time.time()
    keep()
    return model
