"""Training examples: the sequences the sampler will meet, with what is masked and how much each position counts.

Same layouts and prompt table as `dimoo`'s tasks. Only the answer is noised; prompts and source images never are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from dimoo.text import TextTokenizer
from dimoo.vocab import Vocab
from dimoo_training import world as w
from dimoo_training.pictures import PictureBook, draw_from, object_codes

DROP = 0.1
"""Share of drawings without the prompt, and of edits without the instruction, the source or both (a third each)."""
WINDOWS = (8, 16, 32, 48)
"""Lengths of the answer window; the rest behind the answer is padding, which is learned with little weight."""
PAD_WEIGHT = 0.05
OBJECT_WEIGHT, CHANGED_WEIGHT, KEPT_OBJECT_WEIGHT = 4.0, 6.0, 3.0
DESCRIBE = ("describe the picture", "describe this image", "what do you see?", "what is in the picture?")
QUESTION_MIX = {
    "exists": 1.5, "color": 2.0, "shape": 1.5, "count": 1.5, "where": 1.0, "relation": 1.0, "compare": 0.5,
    "background": 0.5,
}  # fmt: skip


@dataclass
class Example:
    """ids (L,) clean; noise (L,) bool: masked positions; weight (L,): share in the loss of each masked position."""

    ids: np.ndarray
    noise: np.ndarray
    weight: np.ndarray


def cosine_noise(count: int, rng: np.random.Generator) -> np.ndarray:
    """(count,) bool with exactly max(1, floor(count * cos(pi/2 * u))) set, u uniform: the sampler's own schedule."""
    chosen = max(1, int(count * np.cos(np.pi / 2 * rng.random())))
    noise = np.zeros(count, dtype=bool)
    noise[rng.permutation(count)[:chosen]] = True
    return noise


class ExampleMaker:
    """Draws examples of one kind from a picture book; every random choice comes from the `rng` argument."""

    def __init__(self, text: TextTokenizer, vocab: Vocab, book: PictureBook, world: w.World):
        self.text, self.vocab, self.book, self.world = text, vocab, book, world
        # Training captions and edits may lead to held-out scenes: those are drawn, but never asked about.
        self.asked = [index for index, scene in enumerate(book.scenes) if not w.held_out(scene.key())]
        self.kinds: dict[str, Callable[[np.random.Generator], Example]] = {
            "draw": self.draw, "edit": self.edit, "answer": self.answer,
        }  # fmt: skip

    def batch(self, kind: str, count: int, length: int, rng: np.random.Generator) -> dict[str, Tensor]:
        """`count` examples of a kind, none longer than `length`."""
        drawn = (self.kinds[kind](rng) for _ in iter(int, 1))
        fitting = (example for example in drawn if len(example.ids) <= length)
        return collate(list(islice(fitting, count)), self.vocab, length)

    def words(self, text: str, rng: np.random.Generator) -> str:
        """Now and then with a full stop, as people write."""
        return text + "." if rng.random() < 0.1 and not text.endswith("?") else text

    def image(self, index: int) -> Tensor:
        return self.vocab.lay_out(torch.from_numpy(self.book.codes[index].astype(np.int64)))

    def draw(self, rng: np.random.Generator) -> Example:
        text, index = self.book.captions[int(rng.integers(len(self.book.captions)))]
        branches = self.text.conditions("text_to_image", self.words(text, rng))
        weight = np.where(object_codes(self.book.scenes[index]), OBJECT_WEIGHT, 1.0)
        return self._picture(branches["uncond" if rng.random() < DROP else "cond"], index, weight, rng)

    def edit(self, rng: np.random.Generator) -> Example:
        text, source, target = self.book.edits[int(rng.integers(len(self.book.edits)))]
        branches = self.text.conditions("edit", self.words(text, rng), [self.image(source)])
        branch = ("no_text", "no_image", "uncond")[int(rng.integers(3))] if rng.random() < DROP else "cond"
        weight = np.where(object_codes(self.book.scenes[target]), KEPT_OBJECT_WEIGHT, 1.0)
        weight[self.book.codes[source] != self.book.codes[target]] = CHANGED_WEIGHT
        return self._picture(branches[branch], target, weight, rng)

    def _picture(self, prompt: Tensor, index: int, weight: np.ndarray, rng: np.random.Generator) -> Example:
        answer = torch.cat([torch.tensor([self.vocab.boa]), self.image(index), torch.tensor([self.vocab.eoa])])
        height, width = weight.shape
        at = len(prompt) + 2 + (np.arange(height)[:, None] * (width + 1) + np.arange(width)).ravel()
        ids = torch.cat([prompt, answer]).numpy()
        noise, weights = np.zeros(len(ids), dtype=bool), np.zeros(len(ids), dtype=np.float32)
        noise[at], weights[at] = cosine_noise(height * width, rng), weight.ravel()
        return Example(ids, noise, weights)

    def answer(self, rng: np.random.Generator) -> Example:
        """One to three turns about one picture; the last answer stands in a window with padding."""
        index = self.asked[int(rng.integers(len(self.asked)))]
        turns = self._turns(self.book.scenes[index], rng)
        ids, noise, weight, v = [], [], [], self.vocab
        for number, (question, reply) in enumerate(turns):
            asked = self.words(question, rng)
            first = self.text.first_turn("understanding", asked, [self.image(index)]) if number == 0 else []
            ids = [*ids, *(first or self.text.next_turn(asked)), v.boa]
            noise += [False] * (len(ids) - len(noise))
            weight += [0.0] * (len(ids) - len(weight))
            words, last = self.text.encode(reply), number == len(turns) - 1
            room = int(rng.choice([n for n in WINDOWS if n > len(words)])) if last else 0
            window = words + [v.eoa] + [v.pad] * (room - len(words) - 1) if last else words
            hidden = np.zeros(len(window), dtype=bool)
            if last or rng.random() < 0.5:
                hidden[: len(words) + 1] = len(words) <= 5 or cosine_noise(len(words) + 1, rng)[: len(window)]
                hidden[len(words) + 1 :] = cosine_noise(max(1, room), rng)[: len(window) - len(words) - 1]
            ids, noise = ids + window, noise + hidden.tolist()
            weight += [PAD_WEIGHT if token == v.pad else 1.0 for token in window]
            ids, noise, weight = [*ids, v.eoa], [*noise, False], [*weight, 0.0]
        return Example(np.array(ids), np.array(noise), np.array(weight, dtype=np.float32))

    def _turns(self, scene: w.Scene, rng: np.random.Generator) -> list[tuple[str, str]]:
        if rng.random() < 0.2:
            return [(w.reword(DESCRIBE, rng), w.report(scene).text)]
        turns = []
        for _ in range(1 + int(rng.integers(3))):
            question = None
            while question is None:
                question = w.ask(scene, draw_from(QUESTION_MIX, rng), rng, self.world)
            turns.append((question.text, question.answer))
        return turns


def collate(examples: list[Example], vocab: Vocab, length: int) -> dict[str, Tensor]:
    """Stack and pad to `length`: input_ids with masks, labels, weight, key_mask, all (B, L)."""
    shape = (len(examples), length)
    ids, weight = np.full(shape, vocab.pad), np.zeros(shape, dtype=np.float32)
    noise, real = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for row, e in enumerate(examples):
        n = len(e.ids)
        ids[row, :n], noise[row, :n], weight[row, :n], real[row, :n] = e.ids, e.noise, e.weight, True
    labels = torch.from_numpy(ids)
    hidden = torch.from_numpy(noise)
    return {
        "input_ids": labels.masked_fill(hidden, vocab.mask),
        "labels": labels,
        "weight": torch.from_numpy(weight * noise),
        "key_mask": torch.from_numpy(real),
    }
