"""Training examples: the sequences the sampler will meet, with what is masked and how much each position counts.

Same layouts and prompt table as `dimoo`'s tasks. Only the answer is noised; prompts and source images never are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from dimoo.text import TextTokenizer
from dimoo.vocab import Vocab
from dimoo_training import world as w
from dimoo_training.conversations import conversation
from dimoo_training.picture_tasks import PICTURE_TASKS, draw_from
from dimoo_training.pictures import PictureBook, Record, object_codes
from dimoo_training.puzzles import PUZZLES

DROP = 0.1
"""Share of drawings without the prompt, and of edits without the instruction, the source or both (a third each)."""
WINDOWS = (8, 16, 32, 48)
"""Lengths of the answer window; the rest behind the answer is padding, which is learned with little weight."""
PAD_WEIGHT = 0.05
SHORT = 6
"""Answers of so many tokens, with their end, are always hidden as a whole; longer ones weigh together as much as one
of this length."""
OBJECT_WEIGHT, CHANGED_WEIGHT, KEPT_OBJECT_WEIGHT = 4.0, 6.0, 3.0
HIDDEN = 0.75
"""Share of earlier answers of a conversation that are hidden and learned as well."""
PUZZLE_MIX = {"sudoku": 2.0, "countdown": 2.0, "arithmetic": 1.0}


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


class Sequence:
    """An example being put together, piece by piece."""

    def __init__(self):
        self.ids: list[int] = []
        self.noise: list[bool] = []
        self.weight: list[float] = []

    def say(self, *ids: int) -> None:
        """Ids that are given."""
        self.answer(ids, [False] * len(ids), [0.0] * len(ids))

    def answer(self, ids, noise, weight) -> None:
        """Ids to learn where `noise` is set."""
        self.ids += list(ids)
        self.noise += list(noise)
        self.weight += list(weight)

    def done(self) -> Example:
        return Example(np.array(self.ids), np.array(self.noise), np.array(self.weight, dtype=np.float32))


def prompted(text: TextTokenizer, system: str, said: str, sources: list[Tensor], rng: np.random.Generator) -> Tensor:
    """What stands before a picture that is asked for; now and then with a part dropped, for guidance."""
    branches = text.conditions(system, said, sources)
    dropped = ("no_text", "no_image", "uncond") if sources else ("uncond",)
    return branches[dropped[int(rng.integers(len(dropped)))] if rng.random() < DROP else "cond"]


def painted(prompt: Tensor, image: Tensor, weight: np.ndarray, v: Vocab, rng: np.random.Generator) -> Example:
    """The laid-out `image` as answer to a prompt; `weight` (h, w) is what each of its codes counts."""
    height, width = weight.shape
    at = 1 + (np.arange(height)[:, None] * (width + 1) + np.arange(width)).ravel()
    answer = image.tolist()
    noise, weights = np.zeros(len(answer), dtype=bool), np.zeros(len(answer), dtype=np.float32)
    noise[at], weights[at] = cosine_noise(height * width, rng), weight.ravel()
    sequence = Sequence()
    sequence.say(*prompt.tolist(), v.boa)
    sequence.answer(answer, noise.tolist(), weights.tolist())
    sequence.say(v.eoa)
    return sequence.done()


def conclude(sequence: Sequence, words: list[int], room: int, v: Vocab, rng: np.random.Generator) -> None:
    """An answer with its end, then padding up to `room`; the padding is noised on its own, as Lumina-DiMOO's.

    Short answers are hidden as a whole: no partial hints.
    """
    said = len(words) + 1
    noise = np.ones(said, dtype=bool) if said <= SHORT else cosine_noise(said, rng)
    sequence.answer([*words, v.eoa], noise.tolist(), [min(1.0, SHORT / said)] * said)
    if room > said:
        padding = room - said
        sequence.answer([v.pad] * padding, cosine_noise(padding, rng).tolist(), [PAD_WEIGHT] * padding)


def window(words: list[int], room: int, rng: np.random.Generator) -> int:
    """A length for an answer with its end: any of WINDOWS that fits into `room`, or the smallest there is for it."""
    smallest, *larger = (length for length in WINDOWS if length > len(words))
    return int(rng.choice([smallest, *(length for length in larger if length <= room)]))


class ExampleMaker:
    """Draws examples of one kind from picture books; every random choice comes from the `rng` argument.

    Args:
        books: a book for each world, by the world's name.
    """

    def __init__(self, text: TextTokenizer, vocab: Vocab, books: Mapping[str, PictureBook]):
        self.text, self.vocab, self.books = text, vocab, dict(books)
        self.asked = {name: book.scenes() for name, book in self.books.items()}
        self.kinds: dict[str, Callable[..., Example]] = {
            **{kind: partial(self.picture, kind) for kind in PICTURE_TASKS}, "answer": self.answer,
            "puzzle": self.puzzle,
            **{kind: partial(self.answer, kind=kind) for kind in w.QUESTION_KINDS},
        }  # fmt: skip

    def batch(
        self, kind: str, count: int, length: int, rng: np.random.Generator, shares: Mapping[str, float] | None = None
    ) -> dict[str, Tensor]:
        """`count` examples of a kind, none longer than `length`; `shares` of the books (None: equal)."""
        mix = shares or dict.fromkeys(self.books, 1.0)
        room = {"room": length} if kind == "answer" or kind in w.QUESTION_KINDS else {}
        drawn = (self.kinds[kind](draw_from(mix, rng), rng, **room) for _ in iter(int, 1))
        fitting = (example for example in drawn if len(example.ids) <= length)
        return collate(list(islice(fitting, count)), self.vocab, length)

    def words(self, text: str, rng: np.random.Generator) -> str:
        """Now and then with a full stop, as people write."""
        return text + "." if rng.random() < 0.1 and not text.endswith("?") else text

    def image(self, book: PictureBook, page: int) -> Tensor:
        return self.vocab.lay_out(torch.from_numpy(book.codes[page].astype(np.int64)))

    def picture(self, kind: str, name: str, rng: np.random.Generator) -> Example:
        """A task answered with a picture."""
        book = self.books[name]
        record = book.records[kind][int(rng.integers(len(book.records[kind])))]
        sources = [self.image(book, page) for page in record.sources]
        prompt = prompted(self.text, record.system, self.words(record.text, rng), sources, rng)
        return painted(prompt, self.image(book, record.target), picture_weight(book, record), self.vocab, rng)

    def answer(
        self, name: str, rng: np.random.Generator, room: int = 216, kind: str | None = None
    ) -> Example:
        """Turns about one picture, in about `room` tokens; the last answer stands in a window with padding.

        With a `kind`, only questions of that kind.
        """
        book, v, sequence = self.books[name], self.vocab, Sequence()
        page = self.asked[name][int(rng.integers(len(self.asked[name])))]
        *earlier, (asked, last) = self._turns(book, page, room, rng, kind)
        for question, words in earlier:
            sequence.say(*question, v.boa)
            sequence.answer(words, [bool(rng.random() < HIDDEN)] * len(words), [1.0] * len(words))
            sequence.say(v.eoa)
        sequence.say(*asked, v.boa)
        conclude(sequence, last, window(last, room - len(sequence.ids) - 1, rng), v, rng)
        sequence.say(v.eoa)
        return sequence.done()

    def _turns(
        self, book: PictureBook, page: int, room: int, rng: np.random.Generator, kind: str | None
    ) -> list[tuple[list[int], list[int]]]:
        """(question, answer) in ids, at least one, and then as many as leave a small window behind them."""
        turns, left = [], room - WINDOWS[0]
        for question, reply in conversation(book.pictures[page], book.world, rng, kind):
            asked, words = self.words(question, rng), self.text.encode(reply)
            ids = (
                self.text.next_turn(asked) if turns
                else self.text.first_turn("understanding", asked, [self.image(book, page)])
            )  # fmt: skip
            left -= len(ids) + len(words) + 2
            if turns and left < 0:
                break
            turns.append((ids, words))
        return turns

    def puzzle(self, name: str, rng: np.random.Generator) -> Example:
        """A text task: no picture."""
        problem = PUZZLES[draw_from(PUZZLE_MIX, rng)].sample(rng, held_out=False)
        sequence = Sequence()
        sequence.say(*self.text.first_turn("understanding", problem.text), self.vocab.boa)
        words = self.text.encode(problem.answer)
        conclude(sequence, words, window(words, max(WINDOWS), rng), self.vocab, rng)
        sequence.say(self.vocab.eoa)
        return sequence.done()


def picture_weight(book: PictureBook, record: Record) -> np.ndarray:
    """(h, w) what each code of the answer counts: objects more, and in edits what changes most."""
    shown, target = object_codes(book.pictures[record.target]), book.codes[record.target]
    if record.system != "edit":
        return np.where(shown, OBJECT_WEIGHT, 1.0)
    weight = np.where(shown, KEPT_OBJECT_WEIGHT, 1.0)
    weight[book.codes[record.sources[0]] != target] = CHANGED_WEIGHT
    return weight


def collate(examples: list[Example], vocab: Vocab, length: int) -> dict[str, Tensor]:
    """Stack and pad to `length`: input_ids with masks, labels, weight, key_mask, all (B, L), and ratio (B,).

    `ratio` is the share of the learnable positions that is masked.
    """
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
        "ratio": torch.tensor([e.noise.sum() / max(1, (e.weight > 0).sum()) for e in examples]),
    }
