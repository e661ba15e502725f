"""Every saved picture carries the parameters that made it, as JSON in a PNG text chunk."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import struct
import unicodedata
import uuid
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image, PngImagePlugin

from dimoo.images.load import ImageError, load_image, open_source

KEYWORD = "dimoo"
SUMMARY_KEYWORD = "parameters"
MAX_BYTES = 1024 * 1024
"""Limit of the JSON text, written or read, in bytes."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MAX_SUMMARY = 1000  # characters
_MAX_SLUG = 80  # bytes; leaves room for seed, index and counter under the usual 255


def save_png(image: Any, path: str | os.PathLike, parameters: Mapping[str, Any]) -> Path:
    """Write a picture with its parameters and return the path; a reader never sees half a file.

    `image` is a Pillow image (any mode PNG knows, pixels untouched) or anything `load_image` reads. Missing
    folders are made. Raises ImageError naming the path, or the parameter JSON cannot hold.
    """
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ImageError(f"{path}: parameters are kept in PNG files; allowed suffix: .png")
    data = png_bytes(image, parameters)
    aside = path.with_name(f".{uuid.uuid4().hex}.part")  # same folder, so the replace is atomic
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_through(aside, data)
        os.replace(aside, path)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise ImageError(f"{path}: cannot be written ({error})") from error
    finally:
        _forget(aside)
    return path


def png_bytes(image: Any, parameters: Mapping[str, Any]) -> bytes:
    """The PNG file `save_png` writes, as bytes: chunk `dimoo` (JSON, UTF-8, sorted keys), chunk `parameters`
    (one line for people), then the pixels. Tuples come back as lists, as in all JSON."""
    picture = image if isinstance(image, Image.Image) else load_image(image)
    text = PngImagePlugin.PngInfo()
    text.add_itxt(KEYWORD, _to_json(parameters))
    text.add_text(SUMMARY_KEYWORD, _summary(parameters))
    file = io.BytesIO()
    try:
        picture.save(file, format="PNG", pnginfo=text)
    except (OSError, ValueError, SystemError) as error:
        size, mode = picture.size, picture.mode
        raise ImageError(f"picture {size} in mode {mode} cannot become PNG ({error})") from error
    return file.getvalue()


def read_parameters(source: Any) -> dict[str, Any]:
    """Parameters of a picture: path, bytes, open file or an opened Pillow image. Pixels are not decoded.

    Raises ImageError when the source is missing, no PNG, carries no parameters, or they are damaged or longer
    than `MAX_BYTES`.
    """
    if isinstance(source, Image.Image):
        name, text = getattr(source, "filename", "") or "<image>", source.info.get(KEYWORD)
    else:
        with open_source(source) as (file, name):
            text = _find_text(file, name)
    if not isinstance(text, str):
        raise ImageError(f"{name}: no DiMOO parameters in this picture; allowed: a PNG saved by DiMOO")
    return _from_json(text, name)


def safe_filename(prompt: str, seed: int, index: int = 0, ext: str = "png") -> str:
    """`a-red-circle_7_0.png`: letters, marks and digits of any script, at most 80 bytes, then seed and index.

    Never a path, an option, hidden, or a name Windows reserves (the seed sees to that); an empty prompt
    becomes `picture`. Raises ImageError for an extension that is not letters and digits, and for a seed or
    index that is not an integer.
    """
    bare = ext.removeprefix(".")
    if not (bare.isascii() and bare.isalnum()):
        raise ImageError(f"file extension {ext!r}; allowed: letters and digits")
    try:
        return f"{_slug(prompt)}_{int(seed)}_{int(index)}.{bare}"
    except (TypeError, ValueError) as error:
        raise ImageError(f"seed {seed!r}, index {index!r}; allowed: integers") from error


def unique_path(folder: str | os.PathLike, name: str) -> Path:
    """Reserve `folder/name`, or `name-2`, `name-3`, ... when taken, as an empty file and return its path.

    Reserving creates the file in one step, so two processes never get the same path. Missing folders are
    made. Raises ImageError for a name that is not a bare file name and a folder that cannot be written.
    """
    if not name or name in (".", "..") or any(char in name for char in "/\\\0"):
        raise ImageError(f"file name {name!r}; allowed: a bare file name without slashes")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for path in _candidates(Path(folder) / name):
            try:
                path.open("xb").close()
                return path
            except FileExistsError:
                continue
    except (OSError, ValueError) as error:
        raise ImageError(f"{Path(folder) / name}: cannot be written ({error})") from error
    raise AssertionError("the candidates never end")


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for count in itertools.count(2):
        yield path.with_name(f"{path.stem}-{count}{path.suffix}")


def _write_through(path: Path, data: bytes) -> None:
    with path.open("xb") as file:  # plain open, not tempfile: the umask decides who may read the picture
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _forget(path: Path) -> None:
    with contextlib.suppress(OSError, ValueError):  # never hide the error that brought us here
        path.unlink(missing_ok=True)


def _slug(prompt: str) -> str:
    plain = unicodedata.normalize("NFKC", prompt or "").lower()
    kept = "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in plain)
    words = "-".join(kept.split())
    slug = words.encode()[:_MAX_SLUG].decode(errors="ignore").strip("-")
    return slug or "picture"


def _to_json(parameters: Mapping[str, Any]) -> str:
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise ImageError(f"parameter name {key!r}; allowed: text")
        try:
            json.dumps(value, allow_nan=False, sort_keys=True)
        except (TypeError, ValueError, RecursionError) as error:
            allowed = "text, finite numbers, true, false, null, lists and dicts of these"
            raise ImageError(f"parameter {key!r} cannot be kept ({error}); allowed: {allowed}") from error
    text = _utf8(json.dumps(dict(parameters), ensure_ascii=False, sort_keys=True))
    if len(text.encode()) > MAX_BYTES:
        raise ImageError(f"parameters take {len(text.encode())} bytes; allowed: {MAX_BYTES}")
    return text


def _from_json(text: str, name: str) -> dict[str, Any]:
    try:
        parameters = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"{name}: the parameters are damaged ({error})") from error
    if not isinstance(parameters, dict):
        raise ImageError(f"{name}: the parameters are a {type(parameters).__name__}; allowed: a JSON object")
    return parameters


def _utf8(text: str) -> str:
    """Half surrogates, which UTF-8 refuses, become their \\udXXX escape: what JSON calls them as well."""
    return text.encode("utf-8", "backslashreplace").decode()


def _summary(parameters: Mapping[str, Any]) -> str:
    """Prompt first, then every plain value, on one line."""
    rest = (f"{key}: {value}" for key, value in sorted(parameters.items())
            if key != "prompt" and isinstance(value, (str, int, float)) and value != "")
    prompt = parameters.get("prompt")
    line = " | ".join(filter(None, [str(prompt) if prompt is not None else "", ", ".join(rest)]))
    flat = "".join(char if unicodedata.category(char)[0] not in "CZ" else " " for char in _utf8(line))
    flat = " ".join(flat.split())
    return flat if len(flat) <= _MAX_SUMMARY else flat[: _MAX_SUMMARY - 1] + "…"


def _find_text(file: BinaryIO, name: str) -> str | None:
    """Walk the chunks, reading only text chunks, until the one with our keyword."""
    if file.read(8) != _SIGNATURE:
        raise ImageError(f"{name}: not a PNG; allowed: a PNG saved by DiMOO")
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        start = file.tell()
        if kind in _DECODERS and file.read(len(KEYWORD) + 1) == KEYWORD.encode() + b"\0":
            return _chunk_text(file, kind, length, name)
        file.seek(start + length + 4)
    return None


def _chunk_text(file: BinaryIO, kind: bytes, length: int, name: str) -> str:
    if length > MAX_BYTES + 64:  # keyword, flags and language tag come on top
        raise ImageError(f"{name}: the parameters take {length} bytes; allowed: {MAX_BYTES}")
    body = file.read(max(0, length - len(KEYWORD) - 1))
    checksum = zlib.crc32(kind + KEYWORD.encode() + b"\0" + body)
    if file.read(4) != struct.pack(">I", checksum):
        raise ImageError(f"{name}: the parameters are damaged (wrong checksum)")
    try:
        return _DECODERS[kind](body)
    except (ValueError, IndexError, zlib.error) as error:
        raise ImageError(f"{name}: the parameters are damaged ({error})") from error


def _inflate(data: bytes) -> bytes:
    text = zlib.decompressobj().decompress(data, MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes unpacked")
    return text


def _international(body: bytes) -> str:
    """iTXt after the keyword: packed flag, method, language, 0, translated keyword, 0, text."""
    text = body[2:].split(b"\0", 2)[2]
    return (_inflate(text) if body[0] else text).decode("utf-8")


# Other programs that copy our text may store it in any of PNG's three text chunks.
_DECODERS = {
    b"iTXt": _international,
    b"tEXt": lambda body: body.decode("latin-1"),
    b"zTXt": lambda body: _inflate(body[1:]).decode("latin-1"),
}
