"""The model reads pictures: it answers questions with choices about image tokens, without decoding and encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dimoo.tasks import Codec
from dimoo.verify import Reading, first_words
from dimoo_training.world.questions import CHOICES, LETTERS, Question


@dataclass(frozen=True)
class Judge:
    """A network that answers. `frozen` is for the log: its opinion does not move with the policy.

    ask: `letters`, single-choice questions as in the report, or `words`: the plain question, of whose answers only
    the first words of the choices are compared (letters still where two choices begin alike). The choices are the same.
    """

    network: torch.nn.Module
    codec: Codec
    ask: str = "letters"
    batch: int = 64

    def __post_init__(self):
        if self.ask not in FORMS:
            raise ValueError(f"unknown way to ask {self.ask!r}; allowed: {', '.join(FORMS)}")

    def form(self, question: Question) -> tuple[str, list[int]]:
        """What is asked, and the first token of each choice."""
        if self.ask == "words":
            firsts = [self.codec.text.encode(choice)[0] for choice in question.choices]
            if len(set(firsts)) == len(firsts):
                return question.text, firsts
        return question.as_choice()[0], letter_ids(self.codec)[: len(question.choices)]

    def probabilities(self, questions: Sequence[Question], images: Sequence[Tensor]) -> Tensor:
        """p of each choice for each question about each image (ids as laid out): (n, CHOICES) float32.

        Choices that a question does not offer have probability 0; the others sum to 1.
        """
        forms = [self.form(question) for question in questions]
        readings = [Reading(text, image) for (text, _), image in zip(forms, images, strict=True)]
        logits = first_words(self.network, self.codec, readings, self.batch)
        offered = torch.tensor([firsts + [self.codec.vocab.mask] * (CHOICES - len(firsts)) for _, firsts in forms])
        return logits.gather(1, offered.to(logits.device)).softmax(-1).cpu()            # the mask id is never said

    def unseen(self, questions: Sequence[Question], height: int, width: int) -> Tensor:
        """The same about a picture that is all masks: what can be answered without looking."""
        empty = self.codec.vocab.empty_image(height, width)
        return self.probabilities(questions, [empty] * len(questions))


FORMS = ("letters", "words")


def letter_ids(codec: Codec) -> list[int]:
    """Ids of the letters. Raises ValueError when the tokenizer does not tell them apart by one token."""
    ids = [codec.text.encode(letter) for letter in LETTERS]
    if any(len(found) != 1 for found in ids) or len({found[0] for found in ids}) < len(ids):
        raise ValueError(f"the tokenizer must write each of {', '.join(LETTERS)} as one token of its own")
    return [found[0] for found in ids]


def right_places(questions: Sequence[Question]) -> Tensor:
    """(n,) place of the right choice of each question."""
    return torch.tensor([LETTERS.index(question.as_choice()[1]) for question in questions])
