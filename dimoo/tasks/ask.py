"""An answer in words to a question, about pictures or about nothing but the words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from dimoo.canvas import Row
from dimoo.tasks.base import Codec, need_text

Turn = tuple[str, str]
"""(question, answer) of an earlier turn."""


@dataclass
class Ask:
    """Answer `question` about `images` (none, one or several), after the turns of `history`.

    The pictures stand in the first turn, behind its question. The answer gets `length` masks; what follows its
    end token is dropped.
    """

    question: str
    images: Sequence[Image.Image] = ()
    history: Sequence[Turn] = ()
    length: int = 128
    kind = "text"
    system = "understanding"

    def __post_init__(self):
        need_text(self.question)
        if self.length < 1:
            raise ValueError(f"the answer length must be at least 1, got {self.length}")

    def prepare(self, codec: Codec) -> Row:
        text, v = codec.text, codec.vocab
        images = [v.lay_out(codec.read(image)[1]) for image in self.images]
        questions = [question for question, _ in self.history] + [self.question]
        ids = text.first_turn(self.system, questions[0], images)
        for (_, answer), question in zip(self.history, questions[1:], strict=True):
            ids += [v.boa, *text.encode(answer), v.eoa, *text.next_turn(question)]
        answer = torch.tensor([v.boa, *[v.mask] * self.length, v.eoa])
        return Row(answer, {"cond": torch.tensor(ids)}, v.everything)

    def finish(self, codec: Codec, answer: Tensor) -> str:
        return codec.text.decode(answer[1:-1])
