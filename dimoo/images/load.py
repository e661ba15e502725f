"""One loader for every entrance: whatever arrives, an upright RGB picture leaves.

Paths, bytes, open files, Pillow pictures, numpy arrays and torch tensors all end as the same thing, so no
other module asks what kind of picture it was given.
"""

from __future__ import annotations

import operator
import threading
import warnings
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from dimoo.images.arrays import divide_257, from_array
from dimoo.images.source import ImageError, is_array, name_of, open_source

MAX_PIXELS = 64 * 1024 * 1024
"""Default size limit: 64 Mi pixels, 192 MiB as RGB."""

# Formats that decode in one bounded step. EPS (runs ghostscript), icon bundles and other containers stay out.
FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")


_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Pillow scales these samples to 8 bits but leaves the transparent colour of the PNG header in file units.
_KEY_TO_8BIT = {"L;2": lambda v: v * 85, "L;4": lambda v: v * 17, "RGB;16B": lambda v: v >> 8}


_OPENING = threading.Lock()  # catch_warnings swaps a process-wide list


def load_image(source: Any, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Read any picture as a new upright RGB picture (mode RGB, 8 bits a channel, empty `info`).

    Files: the content decides the format, not the extension; the first frame of an animation is taken; EXIF
    orientation is applied; colour profiles are not. Transparency is laid on white. 16-bit greys (I;16, I) are
    divided by 257. Float greys (F): values within [0, 1] are multiplied by 255, else values within [0, 255]
    are kept, else (depth, height) the smallest becomes black and the largest white.

    Arrays: (H, W) or (H, W, 1|3|4), bool, uint8, uint16 or float in [0, 1]. Tensors: (1|3|4, H, W) or
    (1, 1|3|4, H, W), bool, uint8 or float in [0, 1].

    Raises ImageError for anything else, naming it, and for more than `max_pixels` before they are decoded.
    """
    picture = _pixels(source, max_pixels)
    if picture.mode == "RGBA":
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture).convert("RGB")
    picture.info = {}
    return picture


def load_mask(source: Any, size: tuple[int, int] | None = None, *,
              max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Read an in-painting mask: mode L, 255 where the picture is to be filled, 0 where it is kept.

    A drawing with any transparency counts by its alpha, everything else by its brightness; 128 and above is
    white. With `size` (width, height in pixels) the mask is stretched to it by nearest neighbour.

    Raises ImageError as `load_image`, for a `size` that is not two positive integers, and for integer arrays
    that hold only 0 and 1, which would silently be an empty mask.
    """
    picture = _pixels(source, max_pixels)
    drawn = picture.mode == "RGBA" and picture.getchannel("A").getextrema()[0] < 255
    grey = picture.getchannel("A") if drawn else picture.convert("RGB").convert("L")
    if grey.getextrema()[1] == 1 and is_array(source):
        raise ImageError(f"{name_of(source)}: only 0 and 1; allowed: bool, float 0 to 1, integers 0 to 255")
    mask = grey.point([0] * 128 + [255] * 128)
    mask.info = {}
    return mask if size is None else mask.resize(_checked_size(size), Image.Resampling.NEAREST)


def _pixels(source: Any, max_pixels: int) -> Image.Image:
    """Any source as a new upright picture in mode RGB or RGBA."""
    if isinstance(source, Image.Image):
        return _decoded(source, name_of(source), max_pixels)
    if is_array(source):
        return _decoded(from_array(source, name_of(source)), name_of(source), max_pixels)
    with open_source(source) as (file, name):
        return _decoded(_identified(file, name), name, max_pixels)


def _identified(file: BinaryIO, name: str) -> Image.Image:
    """Header only; nothing is decoded yet."""
    Image.init()
    formats = [form for form in FORMATS if form in Image.OPEN]
    try:
        with _OPENING, warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit follows
            return Image.open(file, formats=formats)
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name}: too many pixels ({error})") from error
    except Exception as error:  # broken headers raise nearly every type
        allowed = ", ".join(formats)
        raise ImageError(f"{name}: not a picture, or damaged; allowed formats: {allowed}") from error


def _decoded(image: Image.Image, name: str, max_pixels: int) -> Image.Image:
    width, height = image.size
    if not 0 < width * height <= max_pixels:
        raise ImageError(f"{name}: {width} x {height} pixels; allowed: 1 to {max_pixels} pixels in all")
    key = _colour_key(image)
    try:
        image.load()
    except Exception as error:  # decoders raise nearly every type
        raise ImageError(f"{name}: damaged or cut short ({error})") from error
    upright = _upright(image)
    try:
        return _GREYS.get(image.mode, _from_8bit)(upright, key, name)
    except ImageError:
        raise
    except (ValueError, OSError) as error:
        raise ImageError(f"{name}: mode {image.mode} cannot become RGB ({error})") from error


def _colour_key(image: Image.Image) -> Any:
    """Transparent colour in units of the decoded samples, or None; must run before decoding."""
    key = image.info.get("transparency")
    tile = getattr(image, "tile", None)
    scale = _KEY_TO_8BIT.get(tile[0][3]) if tile and isinstance(tile[0][3], str) else None
    if key is None or scale is None:
        return key
    return tuple(map(scale, key)) if isinstance(key, tuple) else scale(key)


def _upright(image: Image.Image) -> Image.Image:
    """A copy, turned as its EXIF orientation asks; unreadable EXIF does not spoil a readable picture."""
    try:
        turn = _TURNS.get(image.getexif().get(_ORIENTATION))
    except Exception:  # as above: hand-made EXIF raises nearly every type
        turn = None
    return image.copy() if turn is None else image.transpose(turn)


def _from_8bit(image: Image.Image, key: Any, name: str) -> Image.Image:
    if key is not None:
        image.info["transparency"] = key
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _from_16bit(image: Image.Image, key: Any, name: str) -> Image.Image:
    values = np.asarray(image)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise ImageError(f"{name}: grey values run from {low} to {high}; allowed: 0 to 65535")
    grey = Image.fromarray(divide_257(values)).convert("RGB")
    if isinstance(key, int):
        grey.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return grey


def _from_float(image: Image.Image, key: Any, name: str) -> Image.Image:
    values = np.asarray(image)
    if not np.isfinite(values).all():
        raise ImageError(f"{name}: grey values hold NaN or infinity; allowed: finite numbers")
    low, high = float(values.min()), float(values.max())
    ranges = ((0.0, 1.0), (0.0, 255.0), (low, high))
    black, white = next((a, b) for a, b in ranges if a <= low and high <= b)
    grey = np.rint((values.astype(np.float64) - black) / ((white - black) or 1.0) * 255)
    return Image.fromarray(grey.astype(np.uint8)).convert("RGB")


_GREYS = {"I": _from_16bit, "I;16": _from_16bit, "I;16L": _from_16bit, "I;16B": _from_16bit,
          "I;16N": _from_16bit, "F": _from_float}


def _checked_size(size: Any) -> tuple[int, int]:
    try:
        width, height = map(operator.index, size)
    except (TypeError, ValueError):
        width = height = 0
    if min(width, height) < 1:
        raise ImageError(f"mask size {size!r}; allowed: (width, height), two positive integers")
    return width, height
