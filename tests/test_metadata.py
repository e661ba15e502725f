"""Parameters inside pictures, and names for pictures."""

import io
import json
import os
import stat
import struct
import threading
import unicodedata
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from dimoo.images import (
    ImageError,
    load_image,
    png_bytes,
    read_parameters,
    safe_filename,
    save_png,
    unique_path,
)
from dimoo.images.chunks import MAX_BYTES

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (5, 7, 3), np.uint8))
PARAMETERS = {"prompt": "a red circle", "seed": 7, "steps": 32, "guidance_scale": 4.0, "negative": None,
              "size": [64, 64]}

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.text() | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6)


def with_text(text, keyword="dimoo", **options):
    chunks = PngImagePlugin.PngInfo()
    chunks.add_itxt(keyword, text, **options)
    file = io.BytesIO()
    PICTURE.save(file, "PNG", pnginfo=chunks)
    return file.getvalue()


def with_chunk(kind, body, length=None):
    chunk = struct.pack(">I", len(body) if length is None else length) + kind + body
    plain = with_text("x", keyword="other")
    return plain[:33] + chunk + struct.pack(">I", zlib.crc32(kind + body)) + plain[33:]


# Round trip ----------------------------------------------------------------------------------------------


@few
@given(st.dictionaries(st.text(), values, max_size=4))
def test_any_parameters_come_back(parameters):
    assert read_parameters(png_bytes(PICTURE, parameters)) == parameters


@pytest.mark.parametrize("prompt", [
    "", "\0", "a\nb\r\n\tc", "größe", "红色的圆", "🎨👩\u200d👩\u200d👧", "\u202eright to left",
    "\ud800 half a surrogate", "'\"\\/</script>", "𝔘𝔫𝔦", "é" * 20_000,
])
def test_difficult_prompts_come_back(prompt):
    data = png_bytes(PICTURE, {"prompt": prompt})
    assert read_parameters(data) == {"prompt": prompt}
    assert load_image(data).tobytes() == PICTURE.tobytes()


def test_save_and_read_by_path_bytes_file_and_picture(tmp_path):
    path = save_png(PICTURE, tmp_path / "new" / "folder" / "a.png", PARAMETERS)
    for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes()), Image.open(path)):
        assert read_parameters(source) == PARAMETERS
    assert load_image(path).tobytes() == PICTURE.tobytes()


def test_the_chunks_others_see():
    parameters = {"b": 1, "prompt": "two\nlines é 圆", "a": (1, 2), "c": None}
    image = Image.open(io.BytesIO(png_bytes(PICTURE, parameters)))
    assert image.text["dimoo"] == '{"a": [1, 2], "b": 1, "c": null, "prompt": "two\\nlines é 圆"}'
    assert image.text["parameters"] == "two lines é 圆 | b: 1"


@pytest.mark.parametrize("parameters", [
    {}, {"prompt": "x" * 5000}, {"prompt": "\0\ud800\u2028\u202e"}, {"prompt": None, "seed": 0}])
def test_the_summary_is_one_short_line(parameters):
    line = Image.open(io.BytesIO(png_bytes(PICTURE, parameters))).text.get("parameters", "")
    assert len(line) <= 1000
    assert line.isprintable()


def test_same_input_same_bytes():
    shuffled = dict(reversed(PARAMETERS.items()))
    assert png_bytes(PICTURE, PARAMETERS) == png_bytes(PICTURE, shuffled)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_modes_keep_their_pixels(mode):
    image = PICTURE.convert(mode)
    again = Image.open(io.BytesIO(png_bytes(image, {})))
    assert again.mode == mode
    assert again.tobytes() == image.tobytes()


def test_anything_the_loader_reads_can_be_saved():
    assert load_image(png_bytes(np.asarray(PICTURE), {})).tobytes() == PICTURE.tobytes()


@pytest.mark.parametrize("zipped", [True, False])
def test_text_rewritten_by_another_program(zipped):
    assert read_parameters(with_text('{"a": "é圆"}', zip=zipped)) == {"a": "é圆"}
    chunks = PngImagePlugin.PngInfo()
    chunks.add_text("dimoo", '{"a": "é"}', zip=zipped)
    file = io.BytesIO()
    PICTURE.save(file, "PNG", pnginfo=chunks)
    assert read_parameters(file) == {"a": "é"}


# Refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("parameters", "message"), [
    ({"a": object()}, "parameter 'a' cannot be kept"),
    ({"seed": np.int64(3)}, "parameter 'seed'.*int64"),
    ({"a": float("nan")}, "parameter 'a'"),
    ({"a": {"b": [b"bytes"]}}, "parameter 'a'.*bytes.*allowed: text"),
    ({3: "a"}, "parameter name 3"),
    ({"a": "x" * (MAX_BYTES + 1)}, f"allowed: {MAX_BYTES}"),
])
def test_parameters_json_cannot_hold(parameters, message):
    with pytest.raises(ImageError, match=message):
        png_bytes(PICTURE, parameters)


@pytest.mark.parametrize(("data", "message"), [
    (b"", "empty"),
    (b"hello", "not a PNG"),
    (with_text("x", keyword="other"), "no DiMOO parameters"),
    (with_text("x", keyword="other")[:20], "no DiMOO parameters"),
    (with_text("{broken"), "damaged"),
    (with_text("[" * 100_000), "damaged"),
    (with_text("[1, 2]"), "are a list; allowed: a JSON object"),
    (with_text('"' + "x" * MAX_BYTES + "y" * 80 + '"'), f"allowed: {MAX_BYTES}"),
    (with_text('"' + "x" * MAX_BYTES * 4 + '"', zip=True), f"more than {MAX_BYTES} bytes unpacked"),
    (with_chunk(b"iTXt", b"dimoo\0\1\0\0\0not packed"), "damaged"),
    (with_chunk(b"iTXt", b"dimoo\0"), "damaged"),
    (with_chunk(b"iTXt", b"dimoo\0\0\0\0\0\xff\xfe"), "damaged"),
    (with_chunk(b"zTXt", b"dimoo\0\0nothing"), "damaged"),
    (with_chunk(b"tEXt", b"dimoo\0{}", length=5), "damaged"),
    (with_chunk(b"tEXt", b"dimoo\0{}", length=2**32 - 1), f"allowed: {MAX_BYTES}"),
    (with_text('{"a": 1}').replace(b'"a": 1', b'"a": 2'), "wrong checksum"),
])
def test_reading_names_what_is_wrong(data, message, tmp_path):
    path = tmp_path / "thing.png"
    path.write_bytes(data)
    for source, name in ((path, "thing.png"), (data, "<bytes>")):
        with pytest.raises(ImageError, match=f"{name}.*{message}"):
            read_parameters(source)


def test_reading_other_things(tmp_path):
    jpeg = io.BytesIO()
    PICTURE.save(jpeg, "JPEG")
    cases = ((tmp_path / "none.png", "no such file"), (tmp_path, "a folder"), (jpeg, "not a PNG"),
             (PICTURE, "<image>: no DiMOO parameters"), (None, "NoneType"))
    for source, message in cases:
        with pytest.raises(ImageError, match=message):
            read_parameters(source)


def test_a_long_foreign_text_is_skipped():
    data = png_bytes(PICTURE, PARAMETERS)
    body = b"workflow\0" + b"x" * (2 * MAX_BYTES)
    foreign = struct.pack(">I", len(body)) + b"tEXt" + body + struct.pack(">I", zlib.crc32(b"tEXt" + body))
    assert read_parameters(data[:33] + foreign + data[33:]) == PARAMETERS


def test_random_damage_is_an_image_error_or_the_parameters():
    random = np.random.default_rng(0)
    data = png_bytes(PICTURE, PARAMETERS)
    for _ in range(300):
        broken = bytearray(data)
        broken[random.integers(len(data))] ^= 1 << random.integers(8)
        try:
            assert read_parameters(bytes(broken)) == PARAMETERS
        except ImageError as error:
            assert "<bytes>" in str(error)


# Saving ------------------------------------------------------------------------------------------------


def test_saving_replaces_in_one_step_and_leaves_nothing_aside(tmp_path, monkeypatch):
    path = save_png(PICTURE, tmp_path / "a.png", {"seed": 1})
    save_png(PICTURE, path, {"seed": 2})
    assert read_parameters(path) == {"seed": 2}

    def full(_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ImageError, match=r"a\.png: cannot be written \(disk full\)"):
        save_png(PICTURE, path, {"seed": 3})
    assert read_parameters(path) == {"seed": 2}
    assert os.listdir(tmp_path) == ["a.png"]


@pytest.mark.skipif(os.name == "nt", reason="no permission bits")
def test_saved_files_follow_the_umask(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    path = save_png(PICTURE, tmp_path / "a.png", {})
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_saving_where_it_cannot_be(tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    cases = ((tmp_path / "a.jpg", "allowed suffix: .png"), (tmp_path / "folder.png", "cannot be written"),
             (tmp_path / "file" / "a.png", "cannot be written"), ("a\0.png", "cannot be written"))
    for path, message in cases:
        with pytest.raises(ImageError, match=message):
            save_png(PICTURE, path, {})
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.png"]
    with pytest.raises(ImageError, match="mode HSV cannot become PNG"):
        save_png(PICTURE.convert("HSV"), tmp_path / "a.png", {})


# Names -------------------------------------------------------------------------------------------------


def assert_safe(name):
    assert 0 < len(name.encode()) <= 130
    assert name[0] not in ".-~ "
    assert name[-1] not in ". "
    assert not set(name) & set('<>:"/\\|?*%$`&;\'')
    assert all(unicodedata.category(char)[0] in "LMN" or char in "-_." for char in name)
    assert name.count(".") == 1
    assert name.split(".")[0].upper() not in {"CON", "PRN", "AUX", "NUL", "COM1", "LPT9"}


@few
@given(prompt=st.text(max_size=300), seed=st.integers(-(2**63), 2**64), index=st.integers(0, 999))
def test_any_prompt_gives_a_safe_name(prompt, seed, index, tmp_path):
    name = safe_filename(prompt, seed, index)
    assert_safe(name)
    assert name == safe_filename(prompt, seed, index)
    (tmp_path / name).touch()  # the file system agrees
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize(("prompt", "name"), [
    ("A red circle!", "a-red-circle_7_0.png"),
    ("", "picture_7_0.png"),
    (None, "picture_7_0.png"),
    ("...", "picture_7_0.png"),
    ("../../etc/passwd", "etc-passwd_7_0.png"),
    ("C:\\con", "c-con_7_0.png"),
    ("CON", "con_7_0.png"),
    ("--rm -rf", "rm-rf_7_0.png"),
    ("红色的圆", "红色的圆_7_0.png"),
    ("हिन्दी", "हिन्दी_7_0.png"),
    ("🎨", "picture_7_0.png"),
    ("\ud800\0\n", "picture_7_0.png"),
    ("℀ ․hidden", "a-c-hidden_7_0.png"),
    ("x" * 500, "x" * 80 + "_7_0.png"),
    ("圆" * 500, "圆" * 26 + "_7_0.png"),
])
def test_names(prompt, name):
    assert safe_filename(prompt, 7) == name
    assert_safe(name)


def test_names_differ_by_seed_index_and_extension():
    assert safe_filename("a", 1, 2, ".webp") == "a_1_2.webp"
    assert len({safe_filename("a", seed, index) for seed in range(3) for index in range(3)}) == 9


@pytest.mark.parametrize("arguments", [
    ("a", 1, 0, "../x"), ("a", 1, 0, ""), ("a", None), ("a", "x"), ("a", 1, [])])
def test_wrong_extension_or_seed(arguments):
    with pytest.raises(ImageError, match="allowed"):
        safe_filename(*arguments)


def test_unique_paths_never_meet(tmp_path):
    names = [unique_path(tmp_path / "new", "a.png").name for _ in range(3)]
    assert names == ["a.png", "a-2.png", "a-3.png"]
    assert unique_path(tmp_path, "a").name == "a"
    taken = tmp_path / "b.png"
    taken.write_text("mine")
    assert save_png(PICTURE, unique_path(tmp_path, "b.png"), PARAMETERS).name == "b-2.png"
    assert taken.read_text() == "mine"


def test_unique_paths_from_many_threads(tmp_path):
    paths = []
    reserve = lambda: paths.append(unique_path(tmp_path, "a.png"))  # noqa: E731
    threads = [threading.Thread(target=reserve) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 16


@pytest.mark.parametrize("name", ["", ".", "..", "a/b.png", "a\\b.png", "a\0.png"])
def test_unique_path_wants_a_bare_name(name, tmp_path):
    with pytest.raises(ImageError, match="bare file name"):
        unique_path(tmp_path, name)


def test_unique_path_where_it_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    for folder, name in ((tmp_path / "file", "a.png"), (tmp_path, "x" * 400 + ".png")):
        with pytest.raises(ImageError, match="cannot be written"):
            unique_path(folder, name)


def test_the_json_is_plain_json():
    text = Image.open(io.BytesIO(png_bytes(PICTURE, PARAMETERS))).text["dimoo"]
    assert json.loads(text) == PARAMETERS
    assert list(json.loads(text)) == sorted(PARAMETERS)
