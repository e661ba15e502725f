"""Passages with holes, and passages that are changed in place, as `dimoo ask` takes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dimoo.tasks import Infill, Rewrite, Turn

HOLE = re.compile(r"\{(\d+)\}")


@dataclass(frozen=True)
class Passage:
    """fill: words with holes, `{3}` for one of three tokens. rewrite: words, of which `keep` are locked and `reopen`
    decided anew; the rest is open to token editing."""

    fill: str | None = None
    rewrite: str | None = None
    keep: Sequence[str] = ()
    reopen: Sequence[str] = ()

    def __post_init__(self):
        if (self.keep or self.reopen) and self.rewrite is None:
            raise ValueError("--keep and --reopen are words of a passage: give it with --rewrite")
        if (self.fill is None) == (self.rewrite is None):
            raise ValueError("give either --fill or --rewrite, not both")
        self.task(None, ())  # refuses what cannot be

    @property
    def name(self) -> str:
        return "infill" if self.rewrite is None else "rewrite"

    def task(self, prompt: str | None, history: Sequence[Turn]) -> Infill | Rewrite:
        """`prompt` says what the passage answers; None: nothing in particular."""
        if self.rewrite is None:
            return Infill(parts(self.fill), prompt or Infill.prompt, history)
        return Rewrite(self.rewrite, prompt or Rewrite.prompt, self.keep, self.reopen, history)

    def stated(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value}


def parts(text: str) -> list[str | int]:
    """ "the {2} circle" -> ["the ", 2, " circle"]."""
    pieces = HOLE.split(text)
    return [int(piece) if place % 2 else piece for place, piece in enumerate(pieces) if piece]
