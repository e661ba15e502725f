"""Arrays and tensors as pictures, and masks from every source."""

import numpy as np
import pytest
import torch
from PIL import Image

from dimoo.images import ImageError, load_image, load_mask

# Anything Pillow would print on its own (bomb warnings above all) fails a test here.
pytestmark = pytest.mark.filterwarnings("error")

WHITE = (255, 255, 255)

# Arrays and tensors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("array", [
    np.ones((4, 6), bool),
    np.full((4, 6), 255, np.uint8),
    np.full((4, 6, 1), 65535, np.uint16),
    np.ones((4, 6, 3), np.float16),
    np.ones((4, 6, 4), np.float32),
    np.ones((4, 6, 3)) + 5e-4,
    np.ones((6, 4, 3)).transpose(1, 0, 2)[::-1],
    torch.ones(1, 4, 6),
    torch.ones(3, 4, 6, dtype=torch.bfloat16, requires_grad=True),
    torch.ones(1, 4, 4, 6),
    torch.ones(1, 1, 4, 6, dtype=torch.bool),
    torch.full((3, 4, 6), 255, dtype=torch.uint8),
], ids=lambda array: f"{type(array).__name__} {tuple(array.shape)} {array.dtype}")
def test_arrays_and_tensors(array):
    loaded = load_image(array)
    assert (loaded.mode, loaded.size) == ("RGB", (6, 4))
    assert loaded.getcolors() == [(24, WHITE)]


def test_array_alpha_is_laid_on_white():
    assert load_image(np.zeros((1, 1, 4), np.uint8)).getpixel((0, 0)) == WHITE
    assert load_image(torch.zeros(4, 1, 1)).getpixel((0, 0)) == WHITE


@pytest.mark.parametrize(("array", "message"), [
    (np.zeros((3, 64, 64), np.uint8), r"\(3, 64, 64\).*allowed arrays: \(H, W\)"),
    (np.zeros((4, 6, 2), np.uint8), "wrong shape"),
    (np.zeros(5, np.uint8), "wrong shape"),
    (np.zeros((2, 4, 6, 3), np.uint8), "wrong shape"),
    (np.zeros((4, 6), np.int64), "int64.*allowed: bool, uint8, uint16, float"),
    (np.zeros((4, 6), complex), "complex128.*allowed"),
    (np.array([["a"]]), "dtype"),
    (np.zeros((0, 6), np.uint8), "empty"),
    (np.full((4, 6), 2.0), "from 2 to 2; allowed: 0 to 1"),
    (np.full((4, 6), -1.0), "from -1 to -1"),
    (np.full((4, 6), np.nan), "nan"),
    (torch.zeros(4, 6), r"<torch \(4, 6\) torch.float32>.*allowed tensors"),
    (torch.zeros(2, 3, 4, 6), "wrong shape"),
    (torch.zeros(4, 6, 3), None),  # channels first: four channels, six rows
    (torch.zeros(6, 6, 3), "wrong shape"),
    (torch.zeros(3, 4, 6, dtype=torch.int64), "int64"),
    (torch.zeros(3, 0, 6), "empty"),
    (torch.full((3, 4, 6), 255.0), "allowed: 0 to 1"),
])
def test_wrong_arrays_name_shape_dtype_and_what_is_allowed(array, message):
    if message is None:
        assert load_image(array).size == (3, 6)
        return
    with pytest.raises(ImageError, match=message):
        load_image(array)


# Masks -------------------------------------------------------------------------------------------------


def test_mask_threshold():
    mask = load_mask(np.array([[0, 127, 128, 255]], np.uint8))
    assert mask.mode == "L"
    assert list(mask.tobytes()) == [0, 0, 255, 255]


@pytest.mark.parametrize("source", [
    np.array([[False, True]]), np.array([[0.0, 1.0]]), np.array([[0, 65535]], np.uint16),
    torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[False, True]]]),
    Image.fromarray(np.array([[0, 255]], np.uint8)).convert("1"),
    Image.fromarray(np.array([[[0] * 3 + [255], [255] * 4]], np.uint8)),  # opaque, so brightness decides
    Image.fromarray(np.array([[[255] * 3 + [0], [0, 0, 0, 255]]], np.uint8)),  # drawn in black: alpha decides
    Image.fromarray(np.array([[[9] * 3 + [127], [9, 9, 9, 128]]], np.uint8)),
])
def test_mask_sources(source):
    assert list(load_mask(source).tobytes()) == [0, 255]


def test_an_empty_drawing_is_an_empty_mask():
    assert load_mask(Image.new("RGBA", (2, 2))).getextrema() == (0, 0)


def test_mask_of_zero_and_one_is_refused_not_emptied():
    for source in (np.eye(3, dtype=np.uint8), torch.eye(3, dtype=torch.uint8)[None]):
        with pytest.raises(ImageError, match="only 0 and 1; allowed: bool"):
            load_mask(source)


def test_mask_is_resized_by_nearest(picture):
    mask = load_mask(np.array([[0, 255]], np.uint8), (6, 2))
    assert mask.size == (6, 2)
    assert list(mask.tobytes()) == [0, 0, 0, 255, 255, 255] * 2
    assert load_mask(picture("L"), (6, 4)).size == (6, 4)


@pytest.mark.parametrize("size", [(0, 4), (4,), (4, -1), 4, (2.5, 2), "ab"])
def test_mask_size_must_be_two_positive_integers(size, picture):
    with pytest.raises(ImageError, match="two positive integers"):
        load_mask(picture("L"), size)
