"""Strips and sheets."""

import numpy as np
import pytest
import torch
from PIL import Image

from dimoo.images import ImageError, sheet, strip

# Anything Pillow would print on its own (bomb warnings above all) fails a test here.
pytestmark = pytest.mark.filterwarnings("error")

BLUE = (0, 0, 255)


def test_strip_is_enlarged_without_smoothing_on_white_with_even_margins(picture):
    row = strip([picture()] * 3, scale=4, gap=8)
    assert row.mode == "RGB"
    assert row.size == (3 * (24 + 8) + 8, 16 + 16)
    pixels = np.array(row)
    tile = np.kron(np.array(picture()), np.ones((4, 4, 1), np.uint8))
    for left in (8, 40, 72):
        assert (pixels[8:24, left : left + 24] == tile).all()
    assert (pixels[0] == 255).all()
    assert (pixels[-1] == 255).all()


def test_captions_stand_below_and_stay_in_their_cell():
    tile = Image.new("RGB", (64, 64), BLUE)
    words = ["step 0", "a very long caption that cannot fit " * 3, "unbreakable" * 20, ""]
    row = np.array(strip([tile] * 4, scale=2, gap=10, captions=words))
    below = row[10 + 128 + 2 :]
    assert below.shape[0] > 20
    assert (below[-4:] == 255).all()
    gaps = [slice(i * 138 + 2, i * 138 + 8) for i in range(5)]
    assert all((below[:, gap] == 255).all() for gap in gaps)
    inked = [bool((below[:, 10 + i * 138 : 138 + i * 138] < 128).any()) for i in range(4)]
    assert inked == [True, True, True, False]


def test_sheet_layout_and_mixed_sources(picture, encoded):
    sources = [picture(), np.array(picture()), encoded(picture()), torch.ones(3, 2, 2), picture("L")]
    grid = sheet(sources, 2, gap=6)
    assert grid.size == (2 * (6 + 6) + 6, 3 * (4 + 6) + 6)
    assert sheet(sources[:1], 5, gap=6).size == (18, 16)
    assert sheet(sources, 2, list("abcde")).height > grid.height


@pytest.mark.parametrize(("call", "message"), [
    (lambda image: strip([]), "no pictures"),
    (lambda image: strip([image], captions=["a", "b"]), "2 captions for 1 pictures"),
    (lambda image: strip([image], scale=0), "scale 0"),
    (lambda image: strip([image], gap=-1), "gap -1"),
    (lambda image: sheet([image], 0), "columns 0"),
    (lambda image: sheet([image], 1.5), "columns 1.5"),
    (lambda image: sheet([np.zeros(3)], 1), "wrong shape"),
])
def test_layout_errors(call, message, picture):
    with pytest.raises(ImageError, match=message):
        call(picture())
