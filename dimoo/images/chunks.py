"""Finding a text in a PNG file: its chunks are walked, pixels are not decoded.

Checksums and sizes are checked, so a damaged or hostile file costs no more than an error.
"""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO

from dimoo.images.source import ImageError

KEYWORD = "dimoo"
MAX_BYTES = 1024 * 1024
"""Limit of the JSON text, written or read, in bytes."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def find_text(file: BinaryIO, name: str) -> str | None:
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
