"""Pictures side by side on white, with captions: denoising strips and contact sheets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from dimoo.images.load import load_image
from dimoo.images.source import ImageError

_GROUND = (255, 255, 255)
_EDGE = (218, 220, 224)  # a hairline keeps white pictures visible on white
_INK = (60, 64, 67)
_MAX_LINES = 2


def strip(images: Sequence[Any], *, scale: int = 4, gap: int = 8,
          captions: Sequence[str] | None = None) -> Image.Image:
    """Pictures from left to right, each enlarged `scale` times without smoothing, `gap` pixels around each.

    `images` are anything `load_image` reads; captions stand centred below. Returns mode RGB. Raises
    ImageError for no pictures, another number of captions, a scale below 1 or a gap below 0.
    """
    return sheet(images, max(1, len(images)), captions, scale=scale, gap=gap)


def sheet(images: Sequence[Any], columns: int, captions: Sequence[str] | None = None, *, scale: int = 1,
          gap: int = 8) -> Image.Image:
    """Contact sheet, row by row with `columns` pictures each; smaller pictures are centred in their cell.

    Captions take at most two lines in Pillow's built-in font (Latin letters) and are cut with an ellipsis.
    Returns mode RGB; errors as `strip`, and for columns below 1.
    """
    _check(images, captions, columns=(columns, 1), scale=(scale, 1), gap=(gap, 0))
    tiles = [_enlarged(load_image(image), scale) for image in images]
    width, height = (max(tile.size[axis] for tile in tiles) for axis in (0, 1))
    font = ImageFont.load_default(max(11, min(24, width // 12)))
    texts = [_wrap(caption, font, width) for caption in captions or [""] * len(tiles)]
    line = sum(font.getmetrics())
    below = max(map(len, texts)) * line + (max(4, gap // 2) if any(texts) else 0)

    columns = min(columns, len(tiles))
    rows = -(-len(tiles) // columns)
    ground = Image.new("RGB", (columns * (width + gap) + gap, rows * (height + below + gap) + gap), _GROUND)
    draw = ImageDraw.Draw(ground)
    for place, (tile, text) in enumerate(zip(tiles, texts, strict=True)):
        row, column = divmod(place, columns)
        corner = gap + column * (width + gap), gap + row * (height + below + gap)
        _paste(ground, draw, tile, corner, (width, height))
        for number, words in enumerate(text):
            top = corner[1] + height + below - (max(map(len, texts)) - number) * line
            draw.text((corner[0] + width / 2, top), words, fill=_INK, font=font, anchor="ma")
    return ground


def _check(images: Sequence[Any], captions: Sequence[str] | None, **numbers: tuple[int, int]) -> None:
    if len(images) == 0:
        raise ImageError("no pictures to lay out; allowed: one or more")
    if captions is not None and len(captions) != len(images):
        raise ImageError(f"{len(captions)} captions for {len(images)} pictures; allowed: one for each")
    for name, (value, least) in numbers.items():
        if not isinstance(value, int) or value < least:
            raise ImageError(f"{name} {value!r}; allowed: an integer of at least {least}")


def _enlarged(picture: Image.Image, scale: int) -> Image.Image:
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)


def _paste(ground: Image.Image, draw: ImageDraw.ImageDraw, tile: Image.Image, corner: tuple[int, int],
           cell: tuple[int, int]) -> None:
    left = corner[0] + (cell[0] - tile.width) // 2
    top = corner[1] + (cell[1] - tile.height) // 2
    draw.rectangle((left - 1, top - 1, left + tile.width, top + tile.height), outline=_EDGE)
    ground.paste(tile, (left, top))


def _wrap(caption: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Break a caption into at most `_MAX_LINES` lines that fit `width` pixels."""
    lines: list[str] = []
    for word in caption.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(word)
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES - 1 :] = [lines[_MAX_LINES - 1] + "…"]
    return [_fitted(line, font, width) for line in lines]


def _fitted(line: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    if font.getlength(line) <= width:
        return line
    text = line.rstrip("…")
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"
