"""An answer in words to a question, about pictures or about nothing but the words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from dimoo.canvas import Row
from dimoo.tasks.base import Codec, need_text
from dimoo.tasks.text import TextTask, Turn, row_of


@dataclass
class Ask(TextTask):
    """Answer `question` about `images` (none, one or several), after the turns of `history`.

    The pictures stand in the first turn, behind its question. The answer gets `length` masks; what follows its
    end token is dropped.
    """

    question: str
    images: Sequence[Image.Image] = ()
    history: Sequence[Turn] = ()
    length: int = 128
    system = "understanding"

    def __post_init__(self):
        need_text(self.question)
        if self.length < 1:
            raise ValueError(f"the answer length must be at least 1, got {self.length}")

    def prepare(self, codec: Codec) -> Row:
        v = codec.vocab
        images = [v.lay_out(codec.read(image)[1]) for image in self.images]
        return row_of(codec, self.question, self.history, [v.mask] * self.length, images=images)
