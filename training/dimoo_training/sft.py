"""Supervised training of dimoo-tiny, top to bottom: pictures -> examples -> loss -> update -> checkpoint.

The loss is masked cross-entropy as in Lumina-DiMOO (exact-count cosine masking, no 1/t), with one change: tokens of
objects, and in edits the tokens that change, weigh more than background. Each kind of example is normalised by its
own weight, so one kind cannot outvote another. A run killed at any moment continues from its last state.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from diffusers import VQModel
from torch import Tensor

from dimoo.model.llada import LLaDAForMultiModalGeneration
from dimoo.text import TextTokenizer
from dimoo_training import world as w
from dimoo_training.checkpoint import assemble, new_vocab
from dimoo_training.examples import ExampleMaker
from dimoo_training.notes import Notes
from dimoo_training.objective import MaskedLoss
from dimoo_training.optimiser import Optimiser, warmup_then_decay
from dimoo_training.pictures import PictureBook, make_book
from dimoo_training.recipes import SFTRecipe
from dimoo_training.run_state import Run
from dimoo_training.words import build_tokenizer
from tokenizers_vq import VQImageTokenizer

Batch = dict[str, Tensor]


class Source(Protocol):
    """Where batches come from."""

    def batches(self, step: int, rng: np.random.Generator) -> Iterator[tuple[str, Batch]]:
        """(kind, batch) of one optimiser step; every random choice comes from `rng`."""
        ...


class NotFinite(ArithmeticError):
    """A loss is NaN or infinite: the run stopped before the update, its last state is whole."""


def fit(
    model: LLaDAForMultiModalGeneration, source: Source, recipe: SFTRecipe, out: Path, export: Callable[[], None],
    log: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Train to `recipe.steps`, continuing from `out/state.pt` when it is there.

    Writes out/state.pt every few minutes and calls `export` with the averaged weights in the model; losses by kind
    and mask ratio go to out/log.jsonl and out/tensorboard. Works in one process or under `accelerate launch`.
    """
    accelerator = Accelerator(mixed_precision=recipe.precision, cpu=not torch.cuda.is_available())
    main, state = accelerator.is_main_process, out / "state.pt"
    model.to(accelerator.device).train()
    run = Run(model, Optimiser(model, recipe.lr), recipe.ema, recipe.seed, accelerator.process_index)
    if state.exists():
        run.restore(state)
    if recipe.compile:
        torch._dynamo.config.cache_size_limit = 32                  # one shape a kind
        for block in model.parts.blocks:
            block.compile(dynamic=False)
    objective = accelerator.prepare(MaskedLoss(model))

    def keep() -> None:
        streams = gather_object([run.rng.bit_generator.state])
        if main:
            run.save(state, streams)
            with run.ema.swapped_into(model):
                export()

    notes = Notes(out, run.step, recipe.steps, recipe.log_every, log) if main else None
    saved = time.time()
    while run.step < recipe.steps:
        for kind, batch in source.batches(run.step, run.rng):
            loss, each = objective({name: value.to(accelerator.device) for name, value in batch.items()})
            if not torch.isfinite(loss):
                ids = batch["labels"].tolist()
                raise NotFinite(f"step {run.step}, {kind}: loss {loss.item()}; ids of the batch: {ids}")
            accelerator.backward(loss)
            if main:
                notes.hear(kind, each.cpu(), batch["ratio"])
        norm = run.optimiser.step(warmup_then_decay(run.step / recipe.steps, decay=recipe.decay))
        run.step += 1
        run.ema.update(model, run.step)
        if main:
            notes.turn(run.step, grad_norm=norm)
        if time.time() - saved > recipe.save_every_seconds:
            keep()
            saved = time.time()
    keep()
    if main:
        notes.close()


class WorldSource:
    """Examples of the small world, mixed as the recipe says."""

    def __init__(self, maker: ExampleMaker, recipe: SFTRecipe):
        self.maker, self.recipe = maker, recipe

    def batches(self, step: int, rng: np.random.Generator) -> Iterator[tuple[str, Batch]]:
        shares = self.recipe.shares(step / self.recipe.steps)
        for kind, (count, length) in self.recipe.batches(step).items():
            yield kind, self.maker.batch(kind, count, length, rng, shares)


def train(recipe: SFTRecipe, vq_folder: Path, out: Path, log=print) -> LLaDAForMultiModalGeneration:
    """Train a model of the small world; out/checkpoint can be loaded all along."""
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    vq = VQModel.from_pretrained(vq_folder)
    tokenizer = build_tokenizer()
    vocab = new_vocab(tokenizer, vq.config.num_vq_embeddings)
    books = {name: open_book(out / f"pictures-{name}.pkl", name, recipe, vq) for name in recipe.books}
    maker = ExampleMaker(TextTokenizer(tokenizer, vocab), vocab, books)
    model = LLaDAForMultiModalGeneration(recipe.model_config(vocab, tokenizer))
    log(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters, "
        f"{sum(len(book.pictures) for book in books.values())} pictures")
    fit(model, WorldSource(maker, recipe), recipe, out, lambda: assemble(model, tokenizer, vq, out / "checkpoint"), log)
    return model


def open_book(path: Path, name: str, recipe: SFTRecipe, vq: VQModel) -> PictureBook:
    """The pictures of one world: from disk when they are there and of this recipe and tokenizer, else made and kept."""
    codebook = vq.quantize.embedding.weight.detach().numpy().tobytes()
    sizes = recipe.books[name]
    made_of = (name, tuple(sizes.items()), recipe.seed, hashlib.sha256(codebook).hexdigest())
    if path.exists() and (book := pickle.loads(path.read_bytes())).made_of == made_of:
        return book
    rng = np.random.default_rng([recipe.seed, 1, list(recipe.books).index(name)])
    book = make_book(w.WORLDS[name], sizes, VQImageTokenizer(vq.eval()), rng)
    book.made_of = made_of
    book.save(path)
    return book
