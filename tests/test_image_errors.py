"""What the loader refuses: sizes, damage, files that are no picture, other types."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from dimoo.images import ImageError, load_image, load_mask

# Anything Pillow would print on its own (bomb warnings above all) fails a test here.
pytestmark = pytest.mark.filterwarnings("error")


def huge_png(data, side):
    data[16:24] = struct.pack(">II", side, side)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))


def huge_gif(data, side):
    data[6:10] = struct.pack("<HH", side, side)


def huge_tiff(data, side):
    for tag in (256, 257):  # width, height: entries (tag, type, count, value), type 4 is a 32-bit integer
        place = next(i for i in range(0, len(data), 2) if data[i : i + 2] == struct.pack("<H", tag))
        data[place : place + 12] = struct.pack("<HHII", tag, 4, 1, side)


@pytest.mark.parametrize(("form", "enlarge", "side"), [
    ("PNG", huge_png, 9_000), ("PNG", huge_png, 12_000), ("PNG", huge_png, 100_000),
    ("GIF", huge_gif, 12_000), ("GIF", huge_gif, 65_000), ("TIFF", huge_tiff, 12_000), ("TIFF", huge_tiff, 50_000),
])
def test_the_size_limit_is_checked_from_the_header(form, enlarge, side, picture, encoded):
    data = bytearray(encoded(picture(), form))
    enlarge(data, side)
    with pytest.raises(ImageError, match=r"<bytes>: .*pixels"):
        load_image(bytes(data))


def test_a_size_limit_of_ones_own(picture, encoded):
    assert load_image(picture(), max_pixels=24).size == (6, 4)
    for source in (picture(), encoded(picture()), np.array(picture())):
        with pytest.raises(ImageError, match="6 x 4 pixels; allowed: 1 to 23"):
            load_image(source, max_pixels=23)


def test_pillow_pictures_without_pixels():
    with pytest.raises(ImageError, match="0 x 5 pixels"):
        load_image(Image.new("RGB", (0, 5)))


FORMS = {"PNG": {}, "JPEG": {}, "GIF": {}, "BMP": {}, "WEBP": {"lossless": True},
         "TIFF": {"compression": "tiff_lzw"}}


@pytest.mark.parametrize("form", FORMS)
def test_truncated_files_say_so(form, tmp_path, encoded):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8))
    data = encoded(noise, form, **FORMS[form])
    path = tmp_path / "cut.png"
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(ImageError, match=r"cut\.png: (damaged or cut short|not a picture, or damaged)"):
        load_image(path)
    with pytest.raises(ImageError):
        load_mask(path)


@pytest.mark.parametrize("form", FORMS)
def test_damage_is_a_picture_or_an_image_error(form, picture, encoded):
    random = np.random.default_rng(1)
    data = encoded(picture(size=(20, 20)), form, **FORMS[form])
    for _ in range(60):
        broken = bytearray(data)
        for place in random.integers(0, len(data), 3):
            broken[place] = random.integers(0, 256)
        try:
            assert load_image(bytes(broken), max_pixels=10**6).mode == "RGB"
        except ImageError as error:
            assert "<bytes>" in str(error)


@pytest.mark.parametrize(("content", "message"), [
    (b"", "empty"),
    (b"hello, this is text", "not a picture, or damaged; allowed formats: .*PNG"),
    (b"\x89PNG\r\n\x1a\n", "not a picture, or damaged"),
    (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "not a picture"),
    (b"\0" * 64, "not a picture"),
])
def test_files_that_are_no_picture(content, message, tmp_path):
    path = tmp_path / "thing.png"
    path.write_bytes(content)
    for source, name in ((path, "thing.png"), (content, "<bytes>"), (io.BytesIO(content), "<BytesIO>")):
        with pytest.raises(ImageError, match=f"{name}: {message}"):
            load_image(source)


def test_paths_that_are_no_file(tmp_path):
    for path, message in ((tmp_path / "none.png", "none.png: no such file"), (tmp_path, "a folder or device"),
                          ("", "'': no such file"), ("a\0b.png", "cannot be opened"),
                          ("x" * 5000, "cannot be opened")):
        with pytest.raises(ImageError, match=message):
            load_image(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImageError, match="a folder or device"):
        load_image(tmp_path / "pipe")


@pytest.mark.parametrize(("source", "message"), [
    (None, "from NoneType; allowed: a path, bytes"),
    ([1, 2], "from list"),
    (3, "from int"),
    (io.StringIO("text"), "opened as text"),
])
def test_other_types(source, message):
    with pytest.raises(ImageError, match=message):
        load_image(source)


def test_a_closed_file_is_an_image_error():
    file = io.BytesIO(b"x")
    file.close()
    with pytest.raises(ImageError, match="cannot be read"):
        load_image(file)


def test_the_error_is_a_value_error():
    assert issubclass(ImageError, ValueError)
