"""What was made stays: one folder of PNG files that carry their parameters, read back after a restart."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradio.processing_utils import save_file_to_cache
from gradio.utils import get_upload_folder
from PIL import Image

from dimoo.cli.sources import Source
from dimoo.images import ImageError, load_image, read_parameters, safe_filename, save_png, unique_path

SOURCES = "sources"


class History:
    """Pictures of a folder, newest first. Source pictures of edits are kept below, by checksum, so each repeats.

    With logins every user has a folder of their own. Nothing in the folder is served: see `handed_out`.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)

    def of(self, user: str | None) -> History:
        """The history of a user; letters that a folder cannot have are spelt as numbers."""
        if not user:
            return self
        return History(self.folder / ("user-" + re.sub(r"[^a-z0-9]", lambda found: f"={ord(found[0]):x}=", user)))

    def keep(self, picture: Image.Image, parameters: Mapping[str, Any]) -> Path:
        """Save a picture with everything that made it."""
        name = safe_filename(parameters["prompt"], parameters["seed"], parameters["index"])
        return save_png(picture, unique_path(self.folder, name), parameters)

    def source(self, picture: Image.Image) -> Source:
        """Keep a source picture; the path is relative to the folder, which may be moved."""
        file = io.BytesIO()
        picture.save(file, "PNG")
        checksum = hashlib.sha256(file.getvalue()).hexdigest()
        path = self.folder / SOURCES / f"{checksum[:16]}.png"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".{checksum[:16]}.part")
            aside.write_bytes(file.getvalue())
            aside.replace(path)
        return Source(str(path.relative_to(self.folder)), checksum)

    def recent(self, count: int = 60, words: str = "") -> list[Path]:
        """The newest pictures whose prompt has all of `words`; files that are none of ours are left out."""
        found: list[Path] = []
        for path in sorted(self.folder.glob("*.png"), key=_age):
            said = self.parameters(path)
            prompt = str(said.get("prompt", "")).lower()
            if said and all(word in prompt for word in words.lower().split()):
                found.append(path)
            if len(found) == count:
                break
        return found

    def parameters(self, path: Path | str) -> dict[str, Any]:
        """What a picture says about itself; empty for one that says nothing."""
        try:
            return read_parameters(path)
        except ImageError:
            return {}

    def before(self, path: Path | str) -> Image.Image | None:
        """The picture an edit was made from, if it is still there."""
        sources = self.parameters(path).get("images") or []
        places = [self.folder / one["path"] for one in sources]
        return load_image(places[0]) if places and places[0].is_file() else None


def handed_out(path: Path | str) -> str:
    """A copy of a file under an address that cannot be guessed, for the browser of whoever may see it.

    Gradio serves any file of a folder it may read to every login; so it may not read the history. Its cache names
    files by a keyed checksum and is emptied in time. The copy has the same bytes and the same name.
    """
    return save_file_to_cache(path, get_upload_folder())


def _age(path: Path) -> tuple[int, str]:
    try:
        return -path.stat().st_mtime_ns, path.name
    except OSError:                             # removed meanwhile
        return 0, path.name
