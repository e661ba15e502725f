"""The model checks pictures itself: one forward over image tokens, finished or not, and the first word of the answer.

dMLLM-TTS (2512.19433) takes the logit of "yes"; here it is set against "no" (or against the other numbers of a
count), since a bare logit says more about the question than about the picture.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dimoo.canvas import Canvas, Row, Sequences

if TYPE_CHECKING:
    from dimoo.tasks.base import Codec

ANSWER = 8
"""Masks of the answer window; only the first is read."""
YES_NO = ("yes", "no")
NUMBERS = ("zero", "one", "two", "three", "four")


@dataclass(frozen=True)
class Reading:
    """A question about an image: its ids as `Vocab.lay_out` gives them, masks allowed."""

    question: str
    image: Tensor


@dataclass(frozen=True)
class Check:
    """A question about a picture, its possible answers, and the one that is right if the picture is."""

    question: str
    options: tuple[str, ...]
    right: str


Checks = Callable[[str], Sequence[Check]]
"""From a prompt to what its picture is checked for."""


def reading_row(codec: Codec, reading: Reading) -> Row:
    """The sequence of a reading: the answer is all masks."""
    v = codec.vocab
    prefix = codec.text.first_turn("understanding", reading.question, [reading.image.cpu()])
    return Row(torch.tensor([v.boa, *[v.mask] * ANSWER, v.eoa]), {"cond": torch.tensor(prefix)}, v.everything)


@torch.inference_mode()
def first_words(denoiser, codec: Codec, readings: Sequence[Reading], batch: int = 64) -> Tensor:
    """Logits (n, V) float32 of the first token of each answer; the mask id cannot be said."""
    found = []
    for start in range(0, len(readings), batch):
        rows = [reading_row(codec, reading) for reading in readings[start : start + batch]]
        canvas = Canvas(rows, codec.vocab, [(0, 0)] * len(rows), denoiser.device)
        sequences = Sequences(canvas, ("cond",))
        first = sequences.positions(torch.ones(len(rows), 1, dtype=torch.long, device=canvas.device))
        logits = denoiser(sequences.ids, key_mask=sequences.key_mask, logit_rows=first, columns=canvas.columns).logits
        found.append(logits[:, 0].float())
    logits = torch.cat(found)
    logits[:, codec.vocab.mask] = -torch.inf
    return logits


def scores(denoiser, codec: Codec, checks: Sequence[Sequence[Check]], images: Sequence[Tensor]) -> Tensor:
    """(n,) mean over an image's checks of log p(right answer | the possible ones), one forward a check.

    Only first tokens are compared: a wrong answer that begins like the right one is left out. Raises ValueError when
    none is left.
    """
    flat = [(row, check) for row, group in enumerate(checks) for check in group]
    logits = first_words(denoiser, codec, [Reading(check.question, images[row]) for row, check in flat])
    total, count = logits.new_zeros(len(images)), logits.new_zeros(len(images))
    for (row, check), found in zip(flat, logits, strict=True):
        right, *wrong = starts(codec, check)
        total[row] += found[[right, *wrong]].log_softmax(0)[0]
        count[row] += 1
    return total / count.clamp_min(1)


def starts(codec: Codec, check: Check) -> list[int]:
    """First tokens of the answers, the right one's first; each once."""
    right = codec.text.encode(check.right)[0]
    found = dict.fromkeys([right, *(codec.text.encode(option)[0] for option in check.options)])
    if len(found) < 2:
        raise ValueError(f"the answers {check.options} begin with the same token: they cannot be told apart")
    return list(found)


RELATIONS = re.compile(r"^(.*?) (to the left of|left of|to the right of|right of|above|below|under) (.*)$")
PREFIX = re.compile(r"^(?:please )?(?:draw |a picture of |a photo of |there is |there are )*")
ARTICLE = re.compile(r"^(?:an?|the|one) ")


def facts(prompt: str) -> list[Check]:
    """What a plain English prompt asks for, taken apart: is each thing there, does a relation hold, how many.

    Splits at commas and "and"; a part that begins with a number is counted. A prompt it cannot take apart is asked
    about as a whole.
    """
    text, _, _ = PREFIX.sub("", prompt.strip().rstrip(".").lower()).partition(" on a ")  # the ground is not asked for
    relation = RELATIONS.match(text)
    parts = [relation[1], relation[3]] if relation else re.split(r",\s*(?:and\s+)?|\s+and\s+", text)
    parts = [part for part in parts if part]
    found = [check for part in parts for check in _thing(part)]
    if relation:
        first, second = (ARTICLE.sub("", part) for part in parts)
        found.append(Check(f"is the {first} {relation[2]} the {second}?", YES_NO, "yes"))
    if not any(part.split(" ")[0] in NUMBERS for part in parts) and 1 <= len(parts) < len(NUMBERS):
        found.append(Check("how many objects are there?", NUMBERS, NUMBERS[len(parts)]))
    return found or whole(prompt)


def _thing(part: str) -> list[Check]:
    number, _, things = part.partition(" ")
    if number == "one" and things:
        return [Check(f"is there a {things}?", YES_NO, "yes")]
    if number in NUMBERS and things:
        return [Check(f"how many {things} are there?", NUMBERS, number)]
    return [Check(f"is there {part}?", YES_NO, "yes")]


def whole(prompt: str) -> list[Check]:
    """One question about all of it, as published: for models that take any prompt."""
    return [Check(f"does the image show {prompt.strip().rstrip('.')}?", YES_NO, "yes")]


VERIFIERS: dict[str, Checks] = {"facts": facts, "whole": whole}
