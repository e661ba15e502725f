"""Source pictures of an edit: kept in the parameters by path and checksum, and found again by them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dimoo.images import open_source


@dataclass(frozen=True)
class Source:
    """A picture file: its path as the user gave it, and the SHA-256 of its bytes."""

    path: str
    sha256: str

    @classmethod
    def of(cls, path: str | os.PathLike) -> Source:
        """Raises ImageError when there is no such file."""
        return cls(os.fspath(path), checksum(path))

    @classmethod
    def found(cls, stated: Mapping[str, Any], beside: Path) -> Source:
        """The file a picture says it was made from: at its path, or below or in the folder `beside`.

        Raises ValueError when it is nowhere, or has other contents by now.
        """
        path, wanted = Path(stated["path"]), stated["sha256"]
        places = [place for place in (path, beside / path, beside / path.name) if place.is_file()]
        for place in places:
            if checksum(place) == wanted:
                return cls(str(place), wanted)
        if places:
            raise ValueError(f"{places[0]} is not the picture it was (SHA-256 {wanted[:12]}… is asked for)")
        raise ValueError(f"the source picture {path} is neither there nor in {beside} (SHA-256 {wanted[:12]}…)")


def checksum(path: str | os.PathLike) -> str:
    """SHA-256 of a file, in hexadecimal. Raises ImageError when it cannot be read."""
    with open_source(path) as (file, _):
        return hashlib.sha256(file.read()).hexdigest()
