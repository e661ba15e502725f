"""Where pictures go: new files in a folder, or exactly the file the user named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dimoo.images import ImageError, safe_filename, unique_path

FOLDER = Path("out")
OTHER = (".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")


@dataclass(frozen=True)
class Destination:
    """Names of the pictures of one command.

    folder: where they go. stem: what their names start with; None: each has the name of its prompt.
    exact: the one picture is `folder/stem.png`, which is replaced if it is there.
    """

    folder: Path
    stem: str | None = None
    exact: bool = False

    @classmethod
    def of(cls, out: Path | None, count: int) -> Destination:
        """From --out. Raises ValueError for another format than PNG and a folder that cannot be written."""
        out = FOLDER if out is None else out.expanduser()
        if out.suffix.lower() in OTHER and not out.is_dir():
            raise ImageError(f"{out}: pictures are saved as PNG, which keeps their parameters; allowed: .png")
        named = out.suffix.lower() == ".png" and not out.is_dir()
        made = cls(out.parent, out.stem, count == 1) if named else cls(out)
        made.prepare()
        return made

    def prepare(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ImageError(f"{self.folder}: cannot be a folder for pictures ({error.strerror})") from error
        if not os.access(self.folder, os.W_OK):
            raise ImageError(f"{self.folder}: may not be written")

    @contextmanager
    def picture(self, number: int, prompt: str, seed: int, index: int) -> Iterator[Path]:
        """The path of picture `number`, reserved meanwhile; nothing is left of it when making it fails."""
        if self.exact:
            yield self.folder / f"{self.stem}.png"
            return
        name = f"{self.stem}-{number + 1}.png" if self.stem else safe_filename(prompt, seed, index)
        path = unique_path(self.folder, name)
        try:
            yield path
        finally:
            if path.is_file() and path.stat().st_size == 0:
                path.unlink()

    def frame(self, path: Path, step: int) -> Path:
        """The path of a preview of the picture at `path` after `step` steps."""
        name = f"{path.stem}-step{step:03d}.png"
        return path.with_name(name) if self.exact else unique_path(path.parent, name)
