"""A text canvas as pieces that people can read: what each token says, and where it is still open."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from torch import Tensor

from dimoo.tasks import Codec
from dimoo.tasks.text import within

OPEN = "▁"


@dataclass(frozen=True)
class Piece:
    """One token of an answer: what it says, and whether it is still a mask or behind the end."""

    text: str
    open: bool = False
    over: bool = False


def pieces(codec: Codec, ids: Tensor) -> list[Piece]:
    """The tokens between the markers of an answer (T,), in order."""
    vocab, found, over = codec.vocab, [], False
    for index in within(codec, ids).tolist():
        if index == vocab.mask:
            found.append(Piece(OPEN, open=True))
            continue
        over = over or index in vocab.ends
        found.append(Piece("" if over else codec.text.tokenizer.decode([index]), over=over))
    return found


def so_far(codec: Codec, ids: Tensor) -> str:
    """An answer in the making as one line: open positions are blanks, what follows its end is left out."""
    vocab, words = codec.vocab, []
    answer = within(codec, ids).tolist()
    end = next((k for k, index in enumerate(answer) if index in vocab.ends), len(answer))
    for masked, run in groupby(answer[:end], lambda index: index == vocab.mask):
        listed = list(run)
        words.append(OPEN * min(len(listed), 12) if masked else codec.text.tokenizer.decode(listed).strip())
    return " ".join(words)
