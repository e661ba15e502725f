"""The model reads pictures: it answers lettered questions about image tokens, without decoding or encoding again."""

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
    """A network that answers. `frozen` is for the log: its opinion does not move with the policy."""

    network: torch.nn.Module
    codec: Codec
    batch: int = 64

    def probabilities(self, questions: Sequence[Question], images: Sequence[Tensor]) -> Tensor:
        """p of the letters a, b, c, d for each question about each image (ids as laid out): (n, CHOICES) float32.

        Letters that a question does not offer have probability 0; the others sum to 1.
        """
        readings = [Reading(q.as_choice()[0], image) for q, image in zip(questions, images, strict=True)]
        logits = first_words(self.network, self.codec, readings, self.batch)[:, letter_ids(self.codec)]
        offered = torch.tensor([[place < len(q.choices) for place in range(CHOICES)] for q in questions])
        return logits.masked_fill(~offered.to(logits.device), -torch.inf).softmax(-1).cpu()

    def unseen(self, questions: Sequence[Question], height: int, width: int) -> Tensor:
        """The same about a picture that is all masks: what can be answered without looking."""
        empty = self.codec.vocab.empty_image(height, width)
        return self.probabilities(questions, [empty] * len(questions))


def letter_ids(codec: Codec) -> list[int]:
    """Ids of the letters. Raises ValueError when the tokenizer does not tell them apart by one token."""
    ids = [codec.text.encode(letter) for letter in LETTERS]
    if any(len(found) != 1 for found in ids) or len({found[0] for found in ids}) < len(ids):
        raise ValueError(f"the tokenizer must write each of {', '.join(LETTERS)} as one token of its own")
    return [found[0] for found in ids]


def right_places(questions: Sequence[Question]) -> Tensor:
    """(n,) place of the right letter of each question."""
    return torch.tensor([LETTERS.index(question.as_choice()[1]) for question in questions])
