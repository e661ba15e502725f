"""Where the answer lies in the ids of a text sample."""

from __future__ import annotations

from torch import Tensor

from dimoo.tasks import Codec


def inside(codec: Codec) -> slice:
    """The part of an answer's ids between those that open and close it."""
    opening, closing = getattr(codec.text, "around", ((codec.vocab.boa,), (codec.vocab.eoa,)))
    return slice(len(opening), -len(closing) or None)


def said(codec: Codec, ids: Tensor) -> list[int]:
    """Those ids of an answer (T,)."""
    return ids[inside(codec)].tolist()
