"""Picture sizes: the tables of the released code, and fitting that gives the same every time."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from dimoo.sizes import cover, crop_sizes, fit, nearest_size
from dimoo.tasks import TextToImage
from dimoo.tasks.base import Codec, to_pixels
from tokenizers_vq import ToyImageTokenizer

FORMAT = json.loads((Path(__file__).parent / "golden" / "format.json").read_text())


def picture(width, height):
    noise = torch.randint(0, 256, (height, width, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return Image.fromarray(noise.numpy())


@pytest.mark.parametrize("side", FORMAT["crop_sizes"])
def test_the_table_of_crop_sizes(side):
    assert crop_sizes(int(side)) == [tuple(size) for size in FORMAT["crop_sizes"][side]]


@pytest.mark.parametrize("size", FORMAT["vq_params"])
def test_the_grid_of_a_picture(size, vocab):
    tokens, per_row, *grid = FORMAT["vq_params"][size]
    height, width = map(int, size.split("x"))
    codec = Codec(None, ToyImageTokenizer(ratio=16), 1024)
    assert TextToImage("a star", height, width).shape(codec) == tuple(grid)
    ids = vocab.empty_image(*grid)
    assert int((ids == vocab.mask).sum()) == tokens
    assert int((ids == vocab.newline).nonzero()[0]) == 1 + per_row


@pytest.mark.parametrize("side", [64, 256, 512])
def test_every_size_is_its_own_nearest(side):
    sizes = crop_sizes(side, multiple=16)
    for size in sizes:
        found = nearest_size(size, sizes)
        assert found[0] * size[1] == found[1] * size[0]  # the same ratio; of equals the first
    assert all(width * height <= side * side for width, height in sizes)
    assert all(width % 16 == 0 and height % 16 == 0 for width, height in sizes)


@pytest.mark.parametrize(
    ("size", "expected"), [((300, 300), (256, 256)), ((900, 300), (384, 128)), ((1, 9), (128, 512))]
)
def test_nearest_is_by_ratio(size, expected):
    assert nearest_size(size, crop_sizes(256)) == expected


@pytest.mark.parametrize("size", [(40, 70), (64, 64), (300, 90), (129, 257), (7, 5)])
@pytest.mark.parametrize("wanted", [(64, 64), (96, 32), (32, 96)])
def test_cover_has_the_size_and_is_deterministic(size, wanted):
    image = picture(*size)
    one, two = cover(image, wanted), cover(image.copy(), wanted)
    assert one.size == wanted
    assert torch.equal(to_pixels(one), to_pixels(two))


def test_cover_keeps_the_middle():
    image = Image.new("RGB", (96, 32), "red")
    image.paste("blue", (32, 0, 64, 32))
    assert cover(image, (32, 32)).getcolors() == [(1024, (0, 0, 255))]
    assert torch.equal(to_pixels(cover(picture(32, 64), (32, 64))), to_pixels(picture(32, 64)))


def test_cover_halves_with_a_box():
    image = picture(128, 128)
    means = torch.nn.functional.avg_pool2d(to_pixels(image), 2)
    assert (to_pixels(cover(image, (64, 64))) - means).abs().max() <= 1.01 / 255  # bicubic is off by 20


@pytest.mark.parametrize("size", [(64, 64), (8, 8), (128, 32), (40, 88)])
def test_fit_leaves_what_fits(size):
    image = picture(*size)
    assert fit(image, 64, 8) is image


@pytest.mark.parametrize("size", [(65, 64), (60, 61), (256, 256), (1000, 10), (3, 3), (128, 64)])
def test_fit_gives_what_the_model_takes(size):
    one, two = fit(picture(*size), 64, 8), fit(picture(*size), 64, 8)
    assert one.width % 8 == 0 and one.height % 8 == 0
    assert one.width * one.height <= 64 * 64
    assert torch.equal(to_pixels(one), to_pixels(two))
    assert fit(one, 64, 8) is one
