"""A picture from words."""

from __future__ import annotations

from dataclasses import dataclass

from dimoo.canvas import Row
from dimoo.tasks.base import Codec, ImageTask, image_row, need_text


@dataclass
class TextToImage(ImageTask):
    """Draw `prompt` at height x width pixels, any multiples of the image tokenizer's ratio."""

    prompt: str
    height: int
    width: int
    system = "text_to_image"

    def __post_init__(self):
        need_text(self.prompt)

    def shape(self, codec: Codec) -> tuple[int, int]:
        if codec.images is None:
            raise ValueError("this checkpoint has no image tokenizer: it cannot draw")
        ratio = codec.images.ratio
        for name, value in (("height", self.height), ("width", self.width)):
            if value < ratio or value % ratio:
                raise ValueError(f"{name} must be a positive multiple of {ratio}, got {value}")
        return self.height // ratio, self.width // ratio

    def prepare(self, codec: Codec) -> Row:
        grid = self.shape(codec)
        conditions = codec.text.conditions(self.system, self.prompt)
        return image_row(codec, codec.vocab.empty_image(*grid), conditions, grid)
