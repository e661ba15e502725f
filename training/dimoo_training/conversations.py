"""What is said about a picture: captions, questions with their answers, and which of them how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
DRILL_MIX = {"exists": 3.0, "relation": 3.0, "compare": 2.0, "count": 1.5, "shape": 1.0}
"""Questions whose answer neither the words nor the picture alone hint at: learned late, and sooner among themselves."""


def conversation(
    scene: w.Scene, world: w.World, rng: np.random.Generator, mix: Mapping[str, float] | None = None
) -> Iterator[tuple[str, str]]:
    """The caption of a scene, or questions about it with their answers: one, or more than anybody has room for."""
    if mix is None and rng.random() < CAPTIONED:
        yield w.reword(DESCRIBE, rng), w.report(scene).text
        return
    alone = rng.random() < ALONE
    while True:
        question = None
        while question is None:
            question = w.ask(scene, draw_from(mix or QUESTION_MIX, rng), rng, world)
        yield question.as_choice() if rng.random() < CHOICE else (question.text, question.answer)
        if alone:
            return
