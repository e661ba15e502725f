"""Filling a hole of any shape in a picture, or the room around it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from dimoo.canvas import Row
from dimoo.sizes import fit
from dimoo.tasks.base import Codec, ImageTask, image_row, need_text, to_image, to_pixels


def mask_cells(mask: Tensor, ratio: int) -> Tensor:
    """(H, W) bool, True where to fill -> (H/ratio, W/ratio) bool: a cell is filled when more than half of it is.

    A mask that is not empty but fills no cell by that rule fills the cells it touches most.
    """
    share = F.avg_pool2d(mask.float()[None, None], ratio)[0, 0]
    cells = share > 0.5
    return cells if cells.any() or not mask.any() else share == share.max()


@dataclass
class Inpaint(ImageTask):
    """Fill `mask` (white or True: to be filled) of `image` so that the whole shows `prompt`.

    The known cells are the codes of the whole picture, so what was in the hole can leak into its neighbours' codes,
    as in the released code. With `preserve` every pixel outside the mask is the source's, exactly; without it the
    decoder's own pixels stay.
    """

    prompt: str
    image: Image.Image
    mask: Image.Image
    preserve: bool = True
    source: Image.Image | None = field(default=None, init=False)
    hole: Tensor | None = field(default=None, init=False)
    grid: tuple[int, int] | None = field(default=None, init=False)
    system = "text_to_image"

    def __post_init__(self):
        need_text(self.prompt)
        if self.image.size != self.mask.size:
            raise ValueError(f"the mask is {_size(self.mask)}, the picture {_size(self.image)}: they must be equal")

    def prepare(self, codec: Codec) -> Row:
        self.source, codes = codec.read(self.image)
        self.hole = self.hole_at(self.source.size, codec)
        if not self.hole.any():
            raise ValueError("the mask is empty: nothing is to be filled")
        cells = mask_cells(self.hole, codec.images.ratio)
        self.grid = tuple(codes.shape)
        known = codes.masked_fill(cells, codec.vocab.mask - codec.vocab.image_offset)
        conditions = codec.text.conditions(self.system, self.prompt)
        return image_row(codec, codec.vocab.lay_out(known), conditions, self.grid)

    def hole_at(self, size: tuple[int, int], codec: Codec) -> Tensor:
        """The mask of the picture fitted to `size` (width, height): (H, W) bool, True where to fill."""
        mask = self.mask.convert("L").point(lambda value: 255 * (value >= 128))
        fitted = fit(mask, codec.image_side, codec.images.ratio) if mask.size != size else mask
        return to_pixels(fitted)[0] >= 0.5

    def complete(self, made: Image.Image) -> Image.Image:
        if not self.preserve:
            return made
        return to_image(torch.where(self.hole, to_pixels(made), to_pixels(self.source)))


def expand(image: Image.Image, left: int, top: int, right: int, bottom: int) -> tuple[Image.Image, Image.Image]:
    """A larger picture with room around `image`, and the mask of that room: what out-painting fills.

    The room starts as the picture's mean colour, so that it tells the encoder as little as possible.
    """
    if min(left, top, right, bottom) < 0 or not any((left, top, right, bottom)):
        raise ValueError(f"room must be 0 or more on each side and not 0 on all, got {(left, top, right, bottom)}")
    size = (image.width + left + right, image.height + top + bottom)
    mean = tuple(round(float(channel.mean()) * 255) for channel in to_pixels(image))
    wide = Image.new("RGB", size, mean)
    wide.paste(image, (left, top))
    mask = Image.new("L", size, 255)
    mask.paste(0, (left, top, left + image.width, top + image.height))
    return wide, mask


def _size(image: Image.Image) -> str:
    return f"{image.height}x{image.width}"


