"""The one loader, masks, strips and sheets."""

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

from dimoo.images import ImageError, load_image, load_mask, sheet, strip

# Anything Pillow would print on its own (bomb warnings above all) fails a test here.
pytestmark = pytest.mark.filterwarnings("error")

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def picture(mode="RGB", size=(6, 4)):
    """Left half red, right half blue."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, size[0], size[1]))
    return image.convert(mode)


def encoded(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


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


# Entrances -----------------------------------------------------------------------------------------------


class ReadOnly:
    """A stream that can only be read, once, like a network response."""

    def __init__(self, data):
        self._data, self.read = data, lambda *_: data


ENTRANCES = {
    "str": lambda data, path: str(path),
    "path": lambda data, path: path,
    "bytes": lambda data, path: data,
    "bytearray": lambda data, path: bytearray(data),
    "memoryview": lambda data, path: memoryview(data),
    "file": lambda data, path: io.BytesIO(data),
    "stream": lambda data, path: ReadOnly(data),
    "pillow": lambda data, path: picture(),
    "lazy pillow": lambda data, path: Image.open(io.BytesIO(data)),
    "numpy": lambda data, path: np.array(picture()),
    "numpy float": lambda data, path: np.array(picture()) / 255,
    "torch": lambda data, path: torch.from_numpy(np.array(picture())).permute(2, 0, 1),
    "torch batch": lambda data, path: torch.from_numpy(np.array(picture())).permute(2, 0, 1)[None] / 255,
}


@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
def test_every_entrance_gives_the_same_picture(entrance, tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(encoded(picture()))
    same(load_image(entrance(path.read_bytes(), path)), picture())


def test_a_file_at_its_end_is_rewound_and_stays_open():
    file = io.BytesIO()
    picture().save(file, "PNG")
    same(load_image(file), picture())
    assert not file.closed


def test_the_result_is_a_copy_without_leftovers_and_the_source_is_untouched():
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


def test_loading_from_many_threads():
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
def test_lossless_formats_and_any_extension(form, tmp_path):
    path = tmp_path / "wrong.jpg"
    path.write_bytes(encoded(picture(), form))
    same(load_image(path), picture())


@pytest.mark.parametrize("mode", ["RGB", "CMYK", "L"])
def test_jpeg_as_pillow_decodes_it(mode):
    data = encoded(picture(mode, (32, 32)), "JPEG", quality=95)
    same(load_image(data), Image.open(io.BytesIO(data)))


def test_adobe_inverted_cmyk_keeps_its_colours():
    loaded = load_image(encoded(picture("CMYK", (32, 32)), "JPEG", quality=95))
    assert np.abs(np.array(loaded).astype(int) - np.array(picture(size=(32, 32)))).max() < 8


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr", "HSV", "LAB", "RGBX"])
def test_eight_bit_modes(mode):
    same(load_image(picture(mode)), picture(mode))


def test_a_mode_without_rgb_is_named():
    with pytest.raises(ImageError, match="mode La cannot become RGB"):
        load_image(Image.new("La", (2, 2)))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_exif_orientation(form, orientation):
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
def test_broken_exif_does_not_spoil_a_picture(exif):
    source = picture()
    source.info["exif"] = exif
    same(load_image(source), picture())


@pytest.mark.parametrize("form", ["GIF", "PNG", "WEBP", "TIFF"])
def test_animations_give_their_first_frame(form):
    options = {"lossless": True} if form == "WEBP" else {}
    data = encoded(picture(), form, save_all=True, append_images=[Image.new("RGB", (6, 4), WHITE)], **options)
    same(load_image(data), picture())


def test_sixteen_bit_grey():
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
def test_float_grey_follows_the_documented_ranges(values, grey):
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
def test_transparent_files(form):
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
    same(load_image(array), Image.new("RGB", (6, 4), WHITE))


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


# Refusals ----------------------------------------------------------------------------------------------


def huge_gif(side):
    data = bytearray(encoded(picture(), "GIF"))
    data[6:10] = struct.pack("<HH", side, side)
    return bytes(data)


def huge_tiff(side):
    data = bytearray(encoded(picture(), "TIFF"))
    for tag in (256, 257):  # width, height: entries (tag, type, count, value), type 4 is a 32-bit integer
        place = next(i for i in range(0, len(data), 2) if data[i : i + 2] == struct.pack("<H", tag))
        data[place : place + 12] = struct.pack("<HHII", tag, 4, 1, side)
    return bytes(data)


@pytest.mark.parametrize("data", [
    png(9_000, 9_000, 8, 2), png(12_000, 12_000, 8, 2), png(100_000, 100_000, 8, 2),
    huge_gif(12_000), huge_gif(65_000), huge_tiff(12_000), huge_tiff(50_000),
])
def test_the_size_limit_is_checked_from_the_header(data):
    with pytest.raises(ImageError, match=r"<bytes>: .*pixels"):
        load_image(data)


def test_a_size_limit_of_ones_own():
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
def test_truncated_files_say_so(form, tmp_path):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8))
    data = encoded(noise, form, **FORMS[form])
    path = tmp_path / "cut.png"
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(ImageError, match=r"cut\.png: (damaged or cut short|not a picture, or damaged)"):
        load_image(path)
    with pytest.raises(ImageError):
        load_mask(path)


@pytest.mark.parametrize("form", FORMS)
def test_damage_is_a_picture_or_an_image_error(form):
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


def test_mask_is_resized_by_nearest():
    mask = load_mask(np.array([[0, 255]], np.uint8), (6, 2))
    assert mask.size == (6, 2)
    assert list(mask.tobytes()) == [0, 0, 0, 255, 255, 255] * 2
    assert load_mask(picture("L"), (6, 4)).size == (6, 4)


@pytest.mark.parametrize("size", [(0, 4), (4,), (4, -1), 4, (2.5, 2), "ab"])
def test_mask_size_must_be_two_positive_integers(size):
    with pytest.raises(ImageError, match="two positive integers"):
        load_mask(picture("L"), size)


# Strips and sheets -------------------------------------------------------------------------------------


def test_strip_is_enlarged_without_smoothing_on_white_with_even_margins():
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


def test_sheet_layout_and_mixed_sources():
    sources = [picture(), np.array(picture()), encoded(picture()), torch.ones(3, 2, 2), picture("L")]
    grid = sheet(sources, 2, gap=6)
    assert grid.size == (2 * (6 + 6) + 6, 3 * (4 + 6) + 6)
    assert sheet(sources[:1], 5, gap=6).size == (18, 16)
    assert sheet(sources, 2, list("abcde")).height > grid.height


@pytest.mark.parametrize(("call", "message"), [
    (lambda: strip([]), "no pictures"),
    (lambda: strip([picture()], captions=["a", "b"]), "2 captions for 1 pictures"),
    (lambda: strip([picture()], scale=0), "scale 0"),
    (lambda: strip([picture()], gap=-1), "gap -1"),
    (lambda: sheet([picture()], 0), "columns 0"),
    (lambda: sheet([picture()], 1.5), "columns 1.5"),
    (lambda: sheet([np.zeros(3)], 1), "wrong shape"),
])
def test_layout_errors(call, message):
    with pytest.raises(ImageError, match=message):
        call()
