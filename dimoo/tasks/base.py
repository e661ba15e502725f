"""What a task is: it turns a request into a row of a canvas, and the filled row into a picture or words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dimoo.canvas import Row
from dimoo.sizes import fit
from dimoo.text import TextTokenizer
from dimoo.vocab import Vocab
from tokenizers_vq import ImageTokenizer


@dataclass(frozen=True)
class Codec:
    """The places where words and pixels become ids and come back."""

    text: TextTokenizer
    images: ImageTokenizer | None
    """None for a checkpoint of text alone."""
    image_side: int
    """Pictures that are read have at most image_side^2 pixels."""

    @property
    def vocab(self) -> Vocab:
        return self.text.vocab

    def read(self, image: Image.Image) -> tuple[Image.Image, Tensor]:
        """A picture fitted to the model, and its codes (h, w)."""
        if self.images is None:
            raise ValueError("this checkpoint has no image tokenizer: it answers in words about words only")
        fitted = fit(image, self.image_side, self.images.ratio)
        return fitted, self.images.encode(to_pixels(fitted)[None])[0].cpu()

    def draw(self, codes: Tensor) -> Image.Image:
        """Codes (h, w) -> picture. Never in batches: they round otherwise, and a picture is the same alone."""
        return to_image(self.images.decode(codes[None])[0])

    def preview(self, answer: Tensor, grid: tuple[int, int]) -> Image.Image:
        """An unfinished image answer (T,): the cells that are still masked are grey."""
        ids = self.vocab.cells(answer[1:-1], *grid)
        masked = (ids == self.vocab.mask).cpu()
        codes = (ids - self.vocab.image_offset).cpu().masked_fill(masked, 0)
        if not masked.all():
            codes[masked] = codes[~masked].mode().values            # a neutral neighbour for the decoder
        pixels = to_pixels(self.draw(codes))
        hidden = masked.repeat_interleave(self.images.ratio, 0).repeat_interleave(self.images.ratio, 1)
        return to_image(pixels.masked_fill(hidden, 0.5))


def to_pixels(image: Image.Image) -> Tensor:
    """RGB picture -> (3, H, W) float32 in [0, 1]."""
    return torch.from_numpy(np.asarray(image.convert("RGB")).copy()).permute(2, 0, 1).float() / 255


def to_image(pixels: Tensor) -> Image.Image:
    """(3, H, W) float in [0, 1] -> RGB picture."""
    array = (pixels.detach().float().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(array)


class Task(Protocol):
    """A request, ready to be answered; one object a sample."""

    kind: str
    """`draw`, `edit` or `text`: which settings of the checkpoint apply. Only `text` answers in words."""

    def prepare(self, codec: Codec) -> Row:
        """The row to fill. Raises ValueError for what cannot be asked."""
        ...

    def finish(self, codec: Codec, answer: Tensor) -> Any:
        """The filled answer (T,) -> a picture or a text."""
        ...


class ImageTask:
    """What tasks that answer with a picture share."""

    kind = "draw"

    def finish(self, codec: Codec, answer: Tensor) -> Image.Image:
        """The filled answer (T,) -> picture."""
        return self.complete(codec.draw(self.codes(codec, answer)))

    def codes(self, codec: Codec, answer: Tensor) -> Tensor:
        """The filled answer (T,) -> codes (h, w)."""
        return codec.vocab.read_codes(answer[1:-1], *self.shape(codec))

    def preview(self, codec: Codec, answer: Tensor) -> Image.Image:
        """An unfinished answer (T,) -> picture, grey where it is open."""
        return self.complete(codec.preview(answer.cpu(), self.shape(codec)))

    def shape(self, codec: Codec) -> tuple[int, int]:
        """Rows and columns of the answer's codes; known once the task is prepared."""
        return self.grid

    def complete(self, made: Image.Image) -> Image.Image:
        """The last touch on the decoder's picture."""
        return made


def image_row(codec: Codec, image_ids: Tensor, conditions: dict[str, Tensor], grid: tuple[int, int]) -> Row:
    """boa, image, eoa behind its conditions."""
    v = codec.vocab
    answer = torch.cat([torch.tensor([v.boa]), image_ids, torch.tensor([v.eoa])])
    return Row(answer, conditions, v.codes, grid)


def need_text(prompt: str) -> None:
    if not isinstance(prompt, str):
        raise ValueError(f"a prompt is a string, got {type(prompt).__name__}")
    if not prompt.strip():
        raise ValueError("the prompt is empty: say what to draw, change or answer")
