"""Answering questions with a loaded model, turn after turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from dimoo import __version__
from dimoo.cli import console
from dimoo.cli.flags import Machine, Start
from dimoo.cli.passage import Passage
from dimoo.cli.session import Session, checked, load, stated
from dimoo.cli.sources import Source
from dimoo.images import load_image
from dimoo.seeds import seeds_for
from dimoo.settings import Settings
from dimoo.tasks import Ask, Infill, Rewrite, Turn


@dataclass
class Answerer:
    """A conversation about `pictures`; each reply becomes a turn of it."""

    session: Session
    settings: Settings
    length: int
    seed: tuple[int, int]
    sources: Sequence[Source] = ()
    pictures: Sequence[Image.Image] = ()
    turns: list[Turn] = field(default_factory=list)
    passage: Passage | None = None
    """What is filled or changed instead of answering freely."""

    @classmethod
    def of(
        cls, images: Sequence[str], turns: list[Turn], length: int | None, settings: dict[str, Any],
        start: Start, machine: Machine, passage: Passage | None = None,
    ) -> Answerer:  # fmt: skip
        """From the flags; everything is checked before the model is loaded."""
        chosen = checked(settings, "text")
        if length is not None and length < 1:
            raise ValueError(f"--length must be at least 1, got {length}")
        if passage is not None and (images or length is not None):
            raise ValueError("--fill and --rewrite are about their own words: leave out pictures and --length")
        if length is not None:
            chosen.check_length(length)
        sources = [Source.of(path) for path in images]
        pictures = [load_image(path) for path in images]
        (seed,) = seeds_for(1, start.seed, start.index or 0)
        session = load(machine)
        defaults = session.pipeline.defaults
        filled = chosen.filled(defaults, "text")
        return cls(session, filled, length or defaults.text_length, seed, sources, pictures, turns, passage)

    def task(self, question: str | None) -> Ask | Infill | Rewrite:
        if self.passage is not None:
            return self.passage.task(question, tuple(self.turns))
        return Ask(question, self.pictures, tuple(self.turns), self.length)

    def reply(self, question: str | None, stream: bool = False) -> dict[str, Any]:
        """The answer with everything that made it; with `stream` it is shown as it grows."""
        task, (seed, index) = self.task(question), self.seed
        codec = self.session.pipeline.codec
        shown = console.growing() if stream else console.progress(question or "", self.settings.num_inference_steps)
        with shown as advance:

            def after_step(pipeline, tick: int, step: int, tensors: dict[str, Any]) -> None:
                advance(*([task.preview(codec, tensors["ids"][0])] if stream else []))

            began = time.perf_counter()
            made = self.session.pipeline.run(
                [task], seed=seed, index=index, callback_on_step_end=after_step, **vars(self.settings)
            )
            seconds = time.perf_counter() - began
        answer = made.texts[0]
        asked = {"task": "ask", "length": self.length} if self.passage is None else {
            "task": self.passage.name, **self.passage.stated()}  # fmt: skip
        told = {
            "dimoo": __version__, **asked, "question": question, "answer": answer,
            "images": [vars(source) for source in self.sources], "turns": list(self.turns), "seed": seed,
            "index": index, "forwards": made.forwards, "seconds": round(seconds, 3),
        }  # fmt: skip
        self.turns.append((question, answer))
        return {**self.session.parameters(), **stated(self.settings, "text"), **told}
