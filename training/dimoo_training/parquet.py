"""Training batches from the parquet that `hosted_data.tokenise` writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from dimoo.text import TextTokenizer
from dimoo.vocab import Vocab
from dimoo_training.examples import Example, Sequence, collate, conclude, painted, prompted
from dimoo_training.recipes import FineTune

ROOM = 32
"""A text answer is padded to a multiple of this, at least by its end; the released data pads to 1024."""
EIGHT = 8
"""Batches are padded to a multiple of this."""


class ParquetSource:
    """Batches of one task each, of near lengths, in an order that follows from (seed, epoch) alone.

    As in the released sampler, examples are grouped by task, sorted by length, shuffled inside chunks of many global
    batches, cut into global batches, and these are shuffled. A global batch is shared out over processes and
    accumulation; the last of each task is filled up from its own start. Resuming needs the step only.

    Args:
        world, rank: how many processes there are, and which one this is.
    """

    def __init__(
        self, folder: Path, text: TextTokenizer, vocab: Vocab, ratio: int, recipe: FineTune, world: int = 1,
        rank: int = 0,
    ):  # fmt: skip
        paths = sorted(folder.glob("part-*.parquet"))
        if not paths:
            raise ValueError(f"no part-*.parquet in {folder}; make them with: dimoo train tokenize DATA.jsonl")
        self.data = Dataset.from_parquet([str(path) for path in paths], cache_dir=str(folder / "cache"))
        self.text, self.vocab, self.ratio, self.recipe = text, vocab, ratio, recipe
        self.world, self.rank = world, rank
        self.tasks, self.lengths = np.array(self.data["task"]), np.array(self.data["len"])

    @property
    def steps_an_epoch(self) -> int:
        return len(self.order(0))

    @property
    def share(self) -> int:
        """Examples of a global batch."""
        return self.recipe.batch * self.recipe.accumulate * self.world

    @lru_cache(maxsize=2)  # noqa: B019 - one source a run
    def order(self, epoch: int) -> np.ndarray:
        """(steps, share) rows of the data."""
        rng, batches = np.random.default_rng([self.recipe.seed, 4, epoch]), []
        for task in sorted(set(self.tasks)):
            rows = np.flatnonzero(self.tasks == task)
            rows = rows[np.argsort(self.lengths[rows], kind="stable")]
            span = self.recipe.chunk * self.share
            rows = np.concatenate([rng.permutation(rows[i : i + span]) for i in range(0, len(rows), span)])
            batches.append(np.resize(rows, (-(-len(rows) // self.share), self.share)))
        every = np.concatenate(batches)
        return every[rng.permutation(len(every))]

    def batches(self, step: int, rng: np.random.Generator) -> Iterator[tuple[str, dict[str, Tensor]]]:
        epoch, place = divmod(step, self.steps_an_epoch)
        mine = self.order(epoch)[place].reshape(self.recipe.accumulate, self.world, self.recipe.batch)[:, self.rank]
        for rows in mine:
            records = [self.data[int(row)] for row in rows]
            examples = [example(record, self.text, self.vocab, self.ratio, rng) for record in records]
            longest = max(len(e.ids) for e in examples)
            yield records[0]["task"], collate(examples, self.vocab, -(-longest // EIGHT) * EIGHT)


def example(
    record: Mapping[str, Any], text: TextTokenizer, v: Vocab, ratio: int, rng: np.random.Generator
) -> Example:
    """The sequence of a record as the sampler meets it, noised; every code of an answer counts the same."""
    sources = [laid_out(picture, v, ratio, record["id"]) for picture in record["user_images"]]
    if record["answer_image"]:
        target = record["answer_image"][0]
        prompt = prompted(text, record["system"], record["user"], sources, rng)
        weight = np.ones((target["height"] // ratio, target["width"] // ratio), dtype=np.float32)
        return painted(prompt, laid_out(target, v, ratio, record["id"]), weight, v, rng)
    sequence, words = Sequence(), text.encode(record["answer"])
    sequence.say(*text.first_turn(record["system"], record["user"], sources), v.boa)
    conclude(sequence, words, -(-(len(words) + 1) // ROOM) * ROOM, v, rng)
    sequence.say(v.eoa)
    return sequence.done()


def laid_out(picture: Mapping[str, Any], v: Vocab, ratio: int, name: str) -> Tensor:
    """The ids of one image with its row ends. ValueError for codes that are none of this vocabulary."""
    codes = torch.tensor(picture["codes"]) - v.image_offset
    height, width = picture["height"] // ratio, picture["width"] // ratio
    if len(codes) != height * width or not 0 <= int(codes.min()) <= int(codes.max()) < v.codebook_size:
        raise ValueError(f"record {name!r}: {len(codes)} codes for a picture of {width}x{height} codes, or codes of "
                         f"another vocabulary; tokenise the data again with this model")
    return v.lay_out(codes.view(height, width))
