"""Supervised batches between the updates, so that a run for one thing forgets nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from dimoo.pipeline import DiMOOPipeline
from dimoo_training.examples import ExampleMaker
from dimoo_training.picture_tasks import draw_from
from dimoo_training.pictures import kept_book
from dimoo_training.recipes import SFTRecipe
from dimoo_training.world.scene import SIDE_PX

BOOK = {"draw": 3000, "full": 300, "edit": 1500, "dense": 200, "control": 200, "subject": 200, "style": 200}
SHAPES = {"draw": (28, 100), "edit": (12, 172), "answer": (12, 216), "puzzle": (24, 76)}
"""Kind -> examples and tokens of a batch."""
MIX = {"draw": 3.0, "edit": 3.0, "answer": 3.0, "puzzle": 1.0}


@dataclass
class Rehearsal:
    """Batches of `examples.ExampleMaker`, one kind each."""

    maker: ExampleMaker
    mix: Mapping[str, float]

    @classmethod
    def of(
        cls, pipeline: DiMOOPipeline, folder: Path, mix: Mapping[str, float] = MIX, seed: int = 0
    ) -> Rehearsal:
        """From a book of pictures in `folder`, made when it is not there (a few minutes)."""
        scale = pipeline.defaults.height // SIDE_PX
        recipe = SFTRecipe(books={"full": BOOK}, seed=seed, scale=scale)
        codebook = pipeline.vqvae.quantize.embedding.weight.detach().cpu().float()
        path = folder / "pictures-full.pkl"
        book = kept_book(path, "full", recipe, codebook, lambda: pipeline.codec.images)
        text = pipeline.codec.text
        return cls(ExampleMaker(text, text.vocab, {"full": book}), mix)

    def __call__(self, rng: np.random.Generator) -> dict[str, Tensor]:
        kind = draw_from(self.mix, rng)
        return self.maker.batch(kind, *SHAPES[kind], rng)
