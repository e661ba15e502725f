"""What is said about a picture: captions, questions with their answers, and which of them how often."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dimoo_training import world as w
from dimoo_training.picture_tasks import draw_from

ALONE = 0.2
"""Share of questions that are the only one; the others are part of as long a conversation as has room."""
CHOICE = 0.3
"""Share of questions asked with lettered options."""
CAPTIONED = 0.15
DESCRIBE = ("describe the picture", "describe this image", "what do you see?", "what is in the picture?")
QUESTION_MIX = {
    "exists": 3.0, "color": 1.0, "shape": 2.0, "count": 2.0, "where": 0.7, "relation": 2.5, "compare": 2.0,
    "background": 0.2,
}  # fmt: skip


def conversation(
    scene: w.Scene, world: w.World, rng: np.random.Generator, kind: str | None = None
) -> Iterator[tuple[str, str]]:
    """The caption of a scene, or questions about it with their answers: one, or more than anybody has room for.

    With a `kind`, questions of that kind without options, and of others only about scenes that do not allow it.
    """
    if kind is None and rng.random() < CAPTIONED:
        yield w.reword(DESCRIBE, rng), w.report(scene).text
        return
    alone = rng.random() < ALONE
    while True:
        question = kind and w.ask(scene, kind, rng, world)
        while not question:
            question = w.ask(scene, draw_from(QUESTION_MIX, rng), rng, world)
        yield question.as_choice() if kind is None and rng.random() < CHOICE else (question.text, question.answer)
        if alone:
            return
