"""The one loader: every entrance, file formats and modes, transparency."""

import io
import os
import struct
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from dimoo.images import ImageError, load_image

# Anything Pillow would print on its own (bomb warnings above all) fails a test here.
pytestmark = pytest.mark.filterwarnings("error")

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def png(width, height, depth, colour, rows=b"", *more):
    """A hand-made PNG, for headers that Pillow does not write."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), *more, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks)


def same(image, other):
    assert image.mode == "RGB"
    assert image.size == other.size
    assert image.tobytes() == other.convert("RGB").tobytes()


# Entrances ---------------------------------------------------------------------------------------------


class ReadOnly:
    """A stream that can only be read, once, like a network response."""

    def __init__(self, data):
        self._data, self.read = data, lambda *_: data


ENTRANCES = {
    "str": lambda data, path, image: str(path),
    "path": lambda data, path, image: path,
    "bytes": lambda data, path, image: data,
    "bytearray": lambda data, path, image: bytearray(data),
    "memoryview": lambda data, path, image: memoryview(data),
    "file": lambda data, path, image: io.BytesIO(data),
    "stream": lambda data, path, image: ReadOnly(data),
    "pillow": lambda data, path, image: image,
    "lazy pillow": lambda data, path, image: Image.open(io.BytesIO(data)),
    "numpy": lambda data, path, image: np.array(image),
    "numpy float": lambda data, path, image: np.array(image) / 255,
    "torch": lambda data, path, image: torch.from_numpy(np.array(image)).permute(2, 0, 1),
    "torch batch": lambda data, path, image: torch.from_numpy(np.array(image)).permute(2, 0, 1)[None] / 255,
}


@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
def test_every_entrance_gives_the_same_picture(entrance, tmp_path, picture, encoded):
    path = tmp_path / "picture.png"
    path.write_bytes(encoded(picture()))
    same(load_image(entrance(path.read_bytes(), path, picture())), picture())


def test_a_file_at_its_end_is_rewound_and_stays_open(picture):
    file = io.BytesIO()
    picture().save(file, "PNG")
    same(load_image(file), picture())
    assert not file.closed


def test_the_result_is_a_copy_without_leftovers_and_the_source_is_untouched(picture):
    source = picture()
    source.info["icc_profile"] = b"x"
    loaded = load_image(source)
    loaded.paste(WHITE, (0, 0, 6, 4))
    assert source.getpixel((0, 0)) == RED
    assert loaded.info == {}
    assert source.info == {"icc_profile": b"x"}


def test_importing_the_loader_does_not_import_torch():
    code = "import sys, dimoo.images; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_loading_from_many_threads(picture, encoded):
    data, results = encoded(picture()), []
    threads = [threading.Thread(target=lambda: results.append(load_image(data))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for result in results:
        same(result, picture())


# Formats and modes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["PNG", "BMP", "GIF", "TIFF", "PPM"])
def test_lossless_formats_and_any_extension(form, tmp_path, picture, encoded):
    path = tmp_path / "wrong.jpg"
    path.write_bytes(encoded(picture(), form))
    same(load_image(path), picture())


@pytest.mark.parametrize("mode", ["RGB", "CMYK", "L"])
def test_jpeg_as_pillow_decodes_it(mode, picture, encoded):
    data = encoded(picture(mode, (32, 32)), "JPEG", quality=95)
    same(load_image(data), Image.open(io.BytesIO(data)))


def test_adobe_inverted_cmyk_keeps_its_colours(picture, encoded):
    loaded = load_image(encoded(picture("CMYK", (32, 32)), "JPEG", quality=95))
    assert np.abs(np.array(loaded).astype(int) - np.array(picture(size=(32, 32)))).max() < 8


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr", "HSV", "LAB", "RGBX"])
def test_eight_bit_modes(mode, picture):
    same(load_image(picture(mode)), picture(mode))


def test_a_mode_without_rgb_is_named():
    with pytest.raises(ImageError, match="mode La cannot become RGB"):
        load_image(Image.new("La", (2, 2)))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_exif_orientation(form, orientation, encoded):
    exif = Image.Exif()
    exif[0x0112] = orientation
    sketch = np.zeros((16, 24, 3), np.uint8)
    sketch[:8, :8] = 255  # one white corner tells all eight apart, with the size
    options = {"lossless": True} if form == "WEBP" else {}
    loaded = load_image(encoded(Image.fromarray(sketch), form, exif=exif, **options))
    column, row = [(0, 0), (1, 0), (1, 1), (0, 1)][(orientation - 1) % 4]
    assert loaded.size == ((24, 16) if orientation < 5 else (16, 24))
    corners = [(x, y) for x in (2, loaded.width - 3) for y in (2, loaded.height - 3)]
    bright = [place for place in corners if loaded.getpixel(place)[0] > 128]
    assert bright == [(2 + column * (loaded.width - 5), 2 + row * (loaded.height - 5))]


@pytest.mark.parametrize("exif", [b"Exif\0\0garbage", b"Exif\0\0MM\0*\0\0\0\xff", b"\0"])
@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_does_not_spoil_a_picture(exif, picture):
    source = picture()
    source.info["exif"] = exif
    same(load_image(source), picture())


@pytest.mark.parametrize("form", ["GIF", "PNG", "WEBP", "TIFF"])
def test_animations_give_their_first_frame(form, picture, encoded):
    options = {"lossless": True} if form == "WEBP" else {}
    data = encoded(picture(), form, save_all=True, append_images=[Image.new("RGB", (6, 4), WHITE)], **options)
    same(load_image(data), picture())


def test_sixteen_bit_grey(encoded):
    values = np.array([[0, 257, 128 * 257, 65535]], np.uint16)
    for source in (values, Image.fromarray(values), Image.fromarray(values.astype(np.int32)),
                   encoded(Image.fromarray(values)), encoded(Image.fromarray(values), "TIFF"),
                   values.astype(">u2")):
        assert np.array(load_image(source))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_wider_integers_are_refused():
    with pytest.raises(ImageError, match="from 0 to 70000; allowed: 0 to 65535"):
        load_image(Image.fromarray(np.array([[0, 70000]], np.int32)))


@pytest.mark.parametrize(("values", "grey"), [
    ([0, 0.5, 1], [0, 128, 255]),
    ([0, 100, 255], [0, 100, 255]),
    ([-2, 0, 2], [0, 128, 255]),
    ([0, 500, 1000], [0, 128, 255]),
    ([900, 900, 900], [0, 0, 0]),
])
def test_float_grey_follows_the_documented_ranges(values, grey, encoded):
    image = Image.fromarray(np.array([values], np.float32))
    assert np.array(load_image(image))[0, :, 0].tolist() == grey
    assert np.array(load_image(encoded(image, "TIFF")))[0, :, 0].tolist() == grey


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_float_grey_refuses_nan_and_infinity(bad):
    with pytest.raises(ImageError, match="NaN or infinity"):
        load_image(Image.fromarray(np.array([[0, bad]], np.float32)))


# Transparency ------------------------------------------------------------------------------------------


def clear_and_blue(mode):
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    image.putpixel((1, 0), (0, 0, 255, 255))
    return image.convert(mode)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "RGBa", "P"])
def test_transparency_is_laid_on_white(mode):
    loaded = load_image(clear_and_blue(mode))
    assert loaded.getpixel((0, 0)) == WHITE
    assert loaded.getpixel((1, 0)) != WHITE


@pytest.mark.parametrize("form", ["PNG", "GIF", "WEBP", "TIFF"])
def test_transparent_files(form, encoded):
    options = {"lossless": True} if form == "WEBP" else {}
    loaded = load_image(encoded(clear_and_blue("RGBA"), form, **options))
    assert [loaded.getpixel((x, 0)) for x in (0, 1)] == [WHITE, BLUE]


def test_half_transparency_blends():
    assert load_image(Image.new("RGBA", (1, 1), (0, 0, 0, 128))).getpixel((0, 0)) == (127, 127, 127)


TRNS = {
    "2 bit": png(2, 1, 2, 0, b"\0\x40", (b"tRNS", struct.pack(">H", 1))),
    "4 bit": png(2, 1, 4, 0, b"\0\x70", (b"tRNS", struct.pack(">H", 7))),
    "8 bit": png(2, 1, 8, 0, b"\0\x07\x00", (b"tRNS", struct.pack(">H", 7))),
    "16 bit": png(2, 1, 16, 0, b"\0\x07\x07\x00\x00", (b"tRNS", struct.pack(">H", 0x0707))),
    "rgb": png(2, 1, 8, 2, b"\0\x07\x08\x09\0\0\0", (b"tRNS", struct.pack(">HHH", 7, 8, 9))),
    "rgb 16": png(2, 1, 16, 2, b"\0" + b"\x70\x00" * 3 + b"\0" * 6, (b"tRNS", b"\x70\x00" * 3)),
    "palette": png(2, 1, 8, 3, b"\0\x00\x01", (b"PLTE", b"\x09" * 3 + b"\0" * 3), (b"tRNS", b"\0")),
}


@pytest.mark.parametrize("data", TRNS.values(), ids=TRNS)
@pytest.mark.parametrize("lazy", [False, True])
def test_png_transparent_colour(data, lazy):
    loaded = load_image(Image.open(io.BytesIO(data)) if lazy else data)
    assert loaded.getpixel((0, 0)) == WHITE
    assert loaded.getpixel((1, 0)) != WHITE


@pytest.mark.parametrize(("key", "grey"), [(0, [255, 255]), (1, [0, 255])])
def test_one_bit_png_transparent_colour(key, grey):
    data = png(2, 1, 1, 0, b"\0\x40", (b"tRNS", struct.pack(">H", key)))
    assert np.array(load_image(data))[0, :, 0].tolist() == grey


def test_palette_with_partial_alpha():
    data = png(3, 1, 8, 3, b"\0\0\1\2", (b"PLTE", b"\0" * 9), (b"tRNS", b"\0\x80\xff"))
    assert np.array(load_image(data))[0, :, 0].tolist() == [255, 127, 0]
