"""Picture sizes: the checkpoint's aspect buckets, and fitting a picture to a size without guessing."""

from __future__ import annotations

from PIL import Image

Size = tuple[int, int]
"""(width, height) in pixels, as pillow has it."""


def crop_sizes(side: int, multiple: int = 32, max_ratio: float = 4.0) -> list[Size]:
    """Every (width, height) the training data was cropped to, widest first.

    For each height in units of `multiple`, the widest picture of at most (side/multiple)^2 units; and for each width,
    the highest; aspect ratios within `max_ratio`. The order is that of the released table.
    """
    area, sizes = (side // multiple) ** 2, []
    wide, high = area, 1
    while wide > 0:
        if max(wide, high) / min(wide, high) <= max_ratio:
            sizes.append((wide * multiple, high * multiple))
        if (high + 1) * wide <= area:
            high += 1
        else:
            wide -= 1
    return sizes


def nearest_size(size: Size, sizes: list[Size]) -> Size:
    """The bucket whose aspect ratio is nearest to that of `size`, relative difference; the first of equals."""
    ratio = size[0] / size[1]
    return max(sizes, key=lambda s: min(ratio / (s[0] / s[1]), s[0] / s[1] / ratio))


def cover(image: Image.Image, size: Size, at: tuple[float, float] = (0.5, 0.5)) -> Image.Image:
    """Scale to cover `size` and cut a window out, `at` (0..1 from the left, from the top).

    Halves with a box filter while twice too large, then bicubic, as the training data was made. There the window was
    random; here it is in the middle unless asked, so the same picture always gives the same codes.
    """
    width, height = size
    while image.width >= 2 * width and image.height >= 2 * height:
        image = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
    scale = max(width / image.width, height / image.height)
    scaled = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
    if scaled != image.size:
        image = image.resize(scaled, Image.Resampling.BICUBIC)
    left, top = int((image.width - width) * at[0]), int((image.height - height) * at[1])
    return image.crop((left, top, left + width, top + height))


def fit(image: Image.Image, side: int, ratio: int) -> Image.Image:
    """The picture at a size the model takes: as it is when its sides are multiples of `ratio` pixels and its area is
    at most side^2, else cut to the nearest bucket of that area."""
    if image.width % ratio == 0 and image.height % ratio == 0 and image.width * image.height <= side * side:
        return image
    return cover(image, nearest_size(image.size, crop_sizes(side, multiple=2 * ratio)))
