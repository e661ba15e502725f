"""Text from text: answers, passages with holes, and passages that are changed in place.

The three share one layout: what was said so far, then the answer. A checkpoint with a chat template of its own is asked
through it; the others through the prompt they were trained with (`dimoo.text`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from dimoo.canvas import Row
from dimoo.tasks.base import Codec, need_text

Turn = tuple[str, str]
"""(question, answer) of an earlier turn."""
Span = tuple[int, int]
"""Characters start <= c < stop of a text."""


class TextTask:
    """What tasks that answer in words share."""

    kind = "text"

    def finish(self, codec: Codec, answer: Tensor) -> str:
        """The filled answer (T,) -> its words, up to its end."""
        return codec.text.decode(within(codec, answer))

    def preview(self, codec: Codec, answer: Tensor) -> str:
        """An unfinished answer (T,) -> its words, with a mark for each open place."""
        return codec.text.preview(within(codec, answer))


@dataclass
class Text(TextTask):
    """Answer `prompt` in words, after the turns of `history`; `length` masks, what follows the end is dropped."""

    prompt: str
    length: int = 128
    history: Sequence[Turn] = ()

    def __post_init__(self):
        need_text(self.prompt)
        if self.length < 1:
            raise ValueError(f"the answer length must be at least 1, got {self.length}")

    def prepare(self, codec: Codec) -> Row:
        return row_of(codec, self.prompt, self.history, [codec.vocab.mask] * self.length)


@dataclass
class Infill(TextTask):
    """Fill the holes of a passage: `parts` are fixed words, and whole numbers of masks between them.

    The fixed words stand exactly as given, and attention sees them on both sides of a hole. A hole too long ends in
    padding, which is dropped. `prompt` may say what the passage answers.
    """

    parts: Sequence[str | int]
    prompt: str = "complete the text"
    history: Sequence[Turn] = ()

    def __post_init__(self):
        need_text(self.prompt)
        for part in self.parts:
            if not isinstance(part, str) and (isinstance(part, bool) or not isinstance(part, int) or part < 1):
                raise ValueError(f"a hole is a whole number of at least 1 mask, got {part!r}; words are strings")
        if not any(isinstance(part, int) for part in self.parts):
            raise ValueError('nothing to fill: give holes as numbers of masks, as in ["the ", 2, " circle"]')

    def prepare(self, codec: Codec) -> Row:
        encode, mask = codec.text.encode, codec.vocab.mask
        pieces = [encode(part) if isinstance(part, str) else [mask] * part for part in self.parts]
        return row_of(codec, self.prompt, self.history, [index for piece in pieces for index in piece])

    def finish(self, codec: Codec, answer: Tensor) -> str:
        """The whole passage. An end token closes its hole, not the passage."""
        return self.said(codec, answer, lambda hole: codec.text.decode(hole, strip=False))

    def preview(self, codec: Codec, answer: Tensor) -> str:
        return self.said(codec, answer, codec.text.preview)

    def said(self, codec: Codec, answer: Tensor, read: Callable[[Tensor], str]) -> str:
        """The fixed words as they were given, and each hole as it is read."""
        ids, made, place = within(codec, answer), [], 0
        for part in self.parts:
            count = part if isinstance(part, int) else len(codec.text.encode(part))
            made.append(read(ids[place : place + count]) if isinstance(part, int) else part)
            place += count
        return "".join(made)


@dataclass
class Rewrite(TextTask):
    """Change a passage in place instead of writing it again.

    Words in `keep` never change. Words in `reopen` are decided anew. All others stay unless token editing is on
    (`editing="confident"`), which replaces what the model is sure should read differently.

    Args:
        keep, reopen: spans of characters, or strings that occur in `text` (the first occurrence counts).
    """

    text: str
    prompt: str = "complete the text"
    keep: Sequence[Span | str] = ()
    reopen: Sequence[Span | str] = ()
    history: Sequence[Turn] = ()

    def __post_init__(self):
        need_text(self.text)
        need_text(self.prompt)
        locked, opened = ([self.span(given) for given in spans] for spans in (self.keep, self.reopen))
        for start, stop in opened:
            for first, last in locked:
                if start < last and first < stop:
                    both = self.text[max(start, first) : min(stop, last)]
                    raise ValueError(f"{both!r} cannot be kept and reopened at once")
        edges = sorted({0, len(self.text), *(edge for span in (*locked, *opened) for edge in span)})
        self.pieces = [
            (self.text[a:b], held(a, b, locked), held(a, b, opened)) for a, b in pairwise(edges)
        ]
        """(words, kept, reopened), in order; no span is cut."""

    def span(self, given: Span | str) -> Span:
        """Raises ValueError for what is not in the text."""
        if isinstance(given, str):
            start = self.text.find(given) if given else -1
            if start < 0:
                raise ValueError(f"{given!r} does not occur in the text {self.text!r}")
            return start, start + len(given)
        start, stop = given
        if not 0 <= start < stop <= len(self.text):
            raise ValueError(f"a span is (start, stop) with 0 <= start < stop <= {len(self.text)}, got {given}")
        return start, stop

    def prepare(self, codec: Codec) -> Row:
        ids, free = [], []
        for words, kept, opened in self.pieces:
            piece = codec.text.encode(words)
            ids += [codec.vocab.mask] * len(piece) if opened else piece
            free += [not kept] * len(piece)
        return row_of(codec, self.prompt, self.history, ids, free)


def held(start: int, stop: int, spans: Sequence[Span]) -> bool:
    return any(first <= start and stop <= last for first, last in spans)


def row_of(
    codec: Codec, prompt: str, history: Sequence[Turn], ids: list[int], free: list[bool] | None = None,
    images: Sequence[Tensor] = (),
) -> Row:  # fmt: skip
    """The row of an answer `ids` (masks where it is open); `free` marks tokens that editing may replace."""
    before, (opening, closing) = codec.text.chat([*history, (prompt, "")], images), codec.text.around
    answer = torch.tensor([*opening, *ids, *closing])
    rewritable = None
    if free is not None:
        inside = torch.tensor(free) & (torch.tensor(ids) != codec.vocab.mask)
        rewritable = torch.nn.functional.pad(inside, (len(opening), len(closing)))
    return Row(answer, {"cond": torch.tensor(before)}, codec.vocab.everything, rewritable=rewritable)


def within(codec: Codec, answer: Tensor) -> Tensor:
    """The answer (T,) without the ids that open and close it."""
    opening, closing = codec.text.around
    return answer[len(opening) : len(answer) - len(closing)]
