"""Requests become rows and rows become pictures and words; what cannot be asked is refused with the reason."""

import pytest
import torch
from PIL import Image, ImageDraw

from dimoo.tasks import Ask, Edit, Inpaint, TextToImage, expand, mask_cells
from dimoo.tasks.base import to_image, to_pixels


@pytest.fixture
def codec(tiny):
    return tiny.codec


def mask_of(size, *boxes):
    mask = Image.new("L", size, 0)
    for box in boxes:
        mask.paste(255, box)
    return mask


def cells(codec, row):
    return (row.answer[2:-2].view(row.grid[0], row.grid[1] + 1)[:, :-1] == codec.vocab.mask).int().tolist()


def finished(codec, task, fill=7):
    row = task.prepare(codec)
    answer = row.answer.masked_fill(row.answer == codec.vocab.mask, codec.vocab.image_offset + fill)
    return task.finish(codec, answer)


@pytest.mark.parametrize(("share", "filled"), [(0, False), (31, False), (32, False), (33, True), (64, True)])
def test_a_cell_is_filled_when_more_than_half_of_it_is(share, filled):
    mask = torch.zeros(16, 16, dtype=torch.bool)
    mask[8:, 8:] = True  # one cell is filled in any case
    mask[:8, :8] = torch.arange(64).view(8, 8) < share
    assert mask_cells(mask, 8).int().tolist() == [[int(filled), 0], [0, 1]]


def test_a_small_mask_fills_the_cells_it_touches_most():
    mask = torch.zeros(16, 24, dtype=torch.bool)
    mask[3:5, 3:5] = mask[9, 20] = True
    assert mask_cells(mask, 8).int().tolist() == [[1, 0, 0], [0, 0, 0]]
    mask[9:11, 19:21] = True
    assert mask_cells(mask, 8).int().tolist() == [[1, 0, 0], [0, 0, 1]]
    assert not mask_cells(torch.zeros(16, 16, dtype=torch.bool), 8).any()


def test_known_cells_are_the_codes_of_the_picture(codec, photo):
    row = Inpaint("a star", photo, mask_of(photo.size, (16, 8, 37, 24))).prepare(codec)  # 37: cell 4 has 5 of 8 columns
    expected = [[int(y in (1, 2) and x in (2, 3, 4)) for x in range(8)] for y in range(8)]
    assert cells(codec, row) == expected
    codes = codec.read(photo)[1]
    ids = row.answer[2:-2].view(8, 9)[:, :-1]
    known = ~torch.tensor(expected, dtype=torch.bool)
    assert torch.equal(ids[known], codes[known] + codec.vocab.image_offset)


SHAPES = {
    "box": lambda draw: draw.rectangle((9, 14, 30, 41), fill=255),
    "ellipse": lambda draw: draw.ellipse((5, 5, 50, 33), fill=255),
    "line": lambda draw: draw.line((0, 0, 63, 63), fill=255),
    "grey": lambda draw: [draw.rectangle((8, 8, 31, 31), fill=128), draw.rectangle((32, 32, 63, 63), fill=127)],
    "everything": lambda draw: draw.rectangle((0, 0, 63, 63), fill=255),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_preserved_pixels_are_exact(codec, photo, shape):
    mask = Image.new("L", photo.size, 0)
    SHAPES[shape](ImageDraw.Draw(mask))
    made = to_pixels(finished(codec, Inpaint("a star", photo, mask)))
    hole = torch.tensor(list(mask.tobytes())).view(64, 64) >= 128
    source, free = to_pixels(photo), to_pixels(finished(codec, Inpaint("a star", photo, mask, preserve=False)))
    assert torch.equal(made[:, ~hole], source[:, ~hole])
    assert torch.equal(made[:, hole], free[:, hole])
    stopped = Inpaint("a star", photo, mask)  # before its first step: grey where it is open, the rest as it was
    shown = to_pixels(stopped.preview(codec, stopped.prepare(codec).answer))
    assert torch.equal(shown[:, ~hole], source[:, ~hole]) and ((shown[:, hole] * 255).round() == 128).any()
    assert hole.any() and not torch.equal(made[:, hole], source[:, hole])
    if not hole.all():
        assert not torch.equal(free[:, ~hole], source[:, ~hole])


@pytest.mark.parametrize("size", [(70, 50), (200, 200), (33, 97)])
def test_a_picture_of_an_odd_size_is_fitted_with_its_mask(codec, photo, size):
    wide = photo.resize(size)
    task = Inpaint("a star", wide, mask_of(size, (size[0] // 2, 0, *size)))
    made = finished(codec, task)
    assert made.size == task.source.size and made.width * made.height <= 64 * 64
    assert task.hole.shape == (made.height, made.width)
    assert not task.hole[:, : made.width // 2 - 1].any() and task.hole[:, made.width // 2 + 1 :].all()
    assert torch.equal(to_pixels(made)[:, ~task.hole], to_pixels(task.source)[:, ~task.hole])


def test_room_around_a_picture(codec, photo):
    small = photo.crop((0, 0, 24, 40))
    wide, mask = expand(small, 8, 0, 16, 24)
    assert wide.size == mask.size == (48, 64)
    assert torch.equal(to_pixels(wide)[:, :40, 8:32], to_pixels(small))
    white = to_pixels(mask)[0] == 1
    assert not white[:40, 8:32].any() and white.sum() == 48 * 64 - 24 * 40
    row = Inpaint("more", wide, mask).prepare(codec)
    assert cells(codec, row) == [[int(not (y < 5 and 1 <= x < 4)) for x in range(6)] for y in range(8)]
    for room in [(0, 0, 0, 0), (-8, 0, 8, 0)]:
        with pytest.raises(ValueError, match="0 or more on each side and not 0 on all"):
            expand(small, *room)


@pytest.mark.parametrize("grid", [(1, 1), (2, 5), (8, 3)])
def test_a_drawing_has_any_grid(codec, grid):
    task = TextToImage("a star", grid[0] * 8, grid[1] * 8)
    row = task.prepare(codec)
    assert row.grid == grid and cells(codec, row) == [[1] * grid[1]] * grid[0]
    picture = finished(codec, task)
    assert picture.size == (grid[1] * 8, grid[0] * 8)
    codes = torch.full(grid, 7)
    assert torch.equal(to_pixels(picture), to_pixels(codec.draw(codes)))


def test_an_edit_has_the_size_of_the_first_picture(codec, photo):
    first, second = photo.crop((0, 0, 32, 48)), photo
    task = Edit("like this", [first, second], "image_ref_transfer")
    row = task.prepare(codec)
    assert row.grid == (6, 4) and cells(codec, row) == [[1] * 4] * 6
    assert finished(codec, task).size == (32, 48)


def test_an_answer_has_room_for_its_length(codec, photo):
    task = Ask("what is it?", [photo], length=9)
    row, vocab = task.prepare(codec), codec.vocab
    assert row.answer.tolist() == [vocab.boa, *[vocab.mask] * 9, vocab.eoa]
    words = codec.text.encode("a star")
    ids = torch.tensor([vocab.boa, *words, vocab.eoa, *words, vocab.eoa])
    assert task.finish(codec, ids) == "a star"


def test_a_preview_shows_open_cells_in_grey(codec):
    row = TextToImage("a star", 16, 24).prepare(codec)
    row.answer[[2, 7]] = codec.vocab.image_offset + torch.tensor([3, 5])  # the first of each row of 3 and a row end
    preview = to_pixels(codec.preview(row.answer, (2, 3)))
    grey = (preview * 255).round() == 128
    grey = grey.all(0).view(2, 8, 3, 8).permute(0, 2, 1, 3).flatten(2).all(-1)
    assert grey.int().tolist() == [[0, 1, 1], [1, 0, 1]]
    assert to_pixels(codec.preview(TextToImage("x", 16, 16).prepare(codec).answer, (2, 2))).unique().numel() == 1


def test_pixels_round_trip(photo):
    assert torch.equal(to_pixels(to_image(to_pixels(photo))), to_pixels(photo))
    assert (
        to_pixels(Image.new("RGBA", (3, 2), (255, 0, 0, 0))).tolist()
        == to_pixels(Image.new("RGB", (3, 2), "red")).tolist()
    )
    assert to_image(torch.tensor([-1.0, 0.5, 2.0]).view(3, 1, 1)).getpixel((0, 0)) == (0, 128, 255)


PHOTO = Image.new("RGB", (16, 16))
REFUSED = {
    "the prompt is empty": lambda: TextToImage("  ", 16, 16),
    "a prompt is a string, got int": lambda: TextToImage(3, 16, 16),
    "a prompt is a string, got NoneType": lambda: Ask(None),
    "edit_other takes one picture, got 0": lambda: Edit("x", []),
    "edit_add takes one picture, got 3": lambda: Edit("x", [PHOTO] * 3, "edit_add"),
    "image_ref_transfer takes two pictures, got 1": lambda: Edit("x", [PHOTO], "image_ref_transfer"),
    "unknown kind of edit 'paint'; allowed: edit_add": lambda: Edit("x", [PHOTO], "paint"),
    "the prompt is empty: say": lambda: Edit("", [PHOTO]),
    "the mask is 16x8, the picture 16x16": lambda: Inpaint("x", PHOTO, Image.new("L", (8, 16))),
    "answer length must be at least 1, got 0": lambda: Ask("x", length=0),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_asked_is_refused(words):
    with pytest.raises(ValueError, match=words):
        REFUSED[words]()


@pytest.mark.parametrize(("height", "width", "words"), [(12, 16, "height .* 8, got 12"), (16, 0, "width .* 8, got 0"),
                                                       (-8, 16, "height .* 8, got -8")])  # fmt: skip
def test_sizes_are_multiples_of_the_ratio(codec, height, width, words):
    with pytest.raises(ValueError, match=words):
        TextToImage("x", height, width).prepare(codec)


def test_an_empty_mask_is_refused(codec, photo):
    with pytest.raises(ValueError, match="mask is empty"):
        Inpaint("x", photo, Image.new("L", photo.size, 127)).prepare(codec)


def test_a_fixed_instruction_needs_no_prompt(codec, photo):
    one, two = (Edit(words, [photo], "canny_dense").prepare(codec).conditions for words in ("", "anything"))
    assert all(torch.equal(one[branch], two[branch]) for branch in one)
