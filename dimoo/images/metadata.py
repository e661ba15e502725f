"""Every saved picture carries the parameters that made it, as JSON in a PNG text chunk."""

from __future__ import annotations

import contextlib
import io
import json
import os
import unicodedata
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image, PngImagePlugin

from dimoo.images.chunks import KEYWORD, MAX_BYTES, find_text
from dimoo.images.load import load_image
from dimoo.images.source import ImageError, open_source

SUMMARY_KEYWORD = "parameters"


_MAX_SUMMARY = 1000  # characters


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
            text = find_text(file, name)
    if not isinstance(text, str):
        raise ImageError(f"{name}: no DiMOO parameters in this picture; allowed: a PNG saved by DiMOO")
    return _from_json(text, name)


def _write_through(path: Path, data: bytes) -> None:
    with path.open("xb") as file:  # plain open, not tempfile: the umask decides who may read the picture
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _forget(path: Path) -> None:
    with contextlib.suppress(OSError, ValueError):  # never hide the error that brought us here
        path.unlink(missing_ok=True)


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
