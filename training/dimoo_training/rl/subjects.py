"""What a run is about: requests with the facts that rewards need, drawn from the training split only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dimoo.settings import Defaults
from dimoo.tasks import Ask, Task, TextToImage
from dimoo_training import world as w
from dimoo_training.picture_tasks import draw_from
from dimoo_training.puzzles import PUZZLES
from dimoo_training.rl.judge import Judge, right_places
from dimoo_training.rl.questions import questions

FAMILIES = ("single", "two", "counting", "colors", "position", "attributes")


@dataclass(frozen=True)
class Request:
    """A task and what is true of a right answer.

    kind: for the curriculum. truth: a Caption or a Problem (any object a reward understands). questions: about it.
    """

    task: Task
    kind: str
    truth: Any
    questions: tuple[w.Question, ...] = ()


class Curriculum:
    """Kinds are drawn in proportion to p(1-p) of their running success: neither the solved nor the hopeless."""

    def __init__(self, kinds: Sequence[str], memory: float = 0.9):
        self.success, self.memory = dict.fromkeys(kinds, 0.5), memory

    def mix(self) -> dict[str, float]:
        return {kind: 0.05 + p * (1 - p) for kind, p in self.success.items()}

    def hear(self, kinds: Sequence[str], rewards: Sequence[float]) -> None:
        """Rewards in [0, 1] of samples."""
        for kind in dict.fromkeys(kinds):
            mean = float(np.mean([r for k, r in zip(kinds, rewards, strict=True) if k == kind]))
            self.success[kind] = self.memory * self.success[kind] + (1 - self.memory) * min(1.0, max(0.0, mean))


@dataclass
class Drawings:
    """Captions of the small world, with questions that follow from them.

    count: questions a prompt. limit: a question is left out when the judge answers it without the picture with at
    least this probability; None: none is. spare: so many more are thought of.
    """

    world: w.World = field(default_factory=lambda: w.WORLDS["full"])
    kinds: tuple[str, ...] = FAMILIES
    count: int = 6
    spare: int = 4
    limit: float | None = 0.9
    part, measure = "image", "oracle"

    def draw(
        self, count: int, mix: dict[str, float], judge: Judge, defaults: Defaults, rng: np.random.Generator
    ) -> list[Request]:
        captions = [w.train_caption(self.world, draw_from(mix, rng), rng) for _ in range(count)]
        return [self.request(caption, judge, defaults, rng) for caption in captions]

    def request(self, caption: w.Caption, judge: Judge, defaults: Defaults, rng: np.random.Generator) -> Request:
        task = TextToImage(caption.text, defaults.height, defaults.width)
        spare = questions(caption.claim, self.world, self.count + self.spare, rng)
        kept = self.unknown(spare, judge, task) if self.limit is not None else spare
        return Request(task, caption.family, caption, tuple(kept[: self.count]))

    def unknown(self, asked: list[w.Question], judge: Judge, task: TextToImage) -> list[w.Question]:
        """Those that need the picture, in their order; all when there are none."""
        guessed = judge.unseen(asked, *task.shape(judge.codec))
        p = guessed.gather(1, right_places(asked)[:, None])[:, 0].tolist()
        return [question for question, value in zip(asked, p, strict=True) if value < self.limit] or asked


@dataclass
class Puzzle:
    """Text problems with exact checkers."""

    name: str
    length: int = 32
    part, measure = "text", "solved"

    @property
    def kinds(self) -> tuple[str, ...]:
        return (self.name,)

    def draw(self, count: int, mix, judge: Judge, defaults: Defaults, rng: np.random.Generator) -> list[Request]:
        problems = [PUZZLES[self.name].sample(rng, held_out=False) for _ in range(count)]
        return [Request(Ask(p.text, length=self.length), self.name, p) for p in problems]


Subject = Drawings | Puzzle

SUBJECTS: dict[str, Callable[[], Subject]] = {
    "drawings": Drawings, "sudoku": lambda: Puzzle("sudoku"), "countdown": lambda: Puzzle("countdown"),
}  # fmt: skip
"""Name -> what is asked. A new one has `kinds`, `draw(count, mix, judge, defaults, rng) -> [Request]`, `part` (image or
text) and `measure`, the reward that is logged and never used (None: nothing is)."""


def letters_right(probabilities: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """p (n, 4), places (n,) -> p of the right letter, and whether it is the likeliest; both (n,)."""
    return probabilities.gather(1, places[:, None])[:, 0], probabilities.argmax(1) == places


def image_part(answer: Tensor) -> Tensor:
    """The image of a drawn answer boa, image, eoa."""
    return answer[1:-1]


def grouped(values: Tensor, group: int) -> Tensor:
    """(B, ...) prompt-major -> (P, G, ...)."""
    return values.unflatten(0, (-1, group))


def as_tensor(values: Sequence[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float32)
