"""Recipes for text on problems with a checker: how often they are right, and what that takes.

One problem at a time, as the field reports it, so forwards are those of the problem and not of the slowest neighbour.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from dimoo.bench.count import Counted
from dimoo.bench.workload import Load, random_row
from dimoo.canvas import Canvas, Row
from dimoo.recipes import RECIPES, Recipe
from dimoo.sampling import denoise
from dimoo.settings import Defaults, Settings
from dimoo.vocab import Vocab


@dataclass(frozen=True)
class Problem:
    """row: what is to be filled. right: whether the ids of the filled answer are a right answer; None: not known."""

    row: Row
    right: Callable[[Tensor], bool] | None = None


@dataclass
class Score:
    """What one recipe did at one budget, over all problems.

    right: problem by problem; None: not known. forwards: of an answer, on average. tokens: written up to the end of
    each answer. hits: share of positions that a cache spared. flops: of the model, in all.
    same: share of written positions with the ids of the baseline. speed: how many times faster than the baseline.
    """

    recipe: str
    budget: float
    problems: int
    right: list[bool] | None = None
    forwards: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    hits: float = 0.0
    flops: float = 0.0
    same: float | None = None
    speed: float | None = None
    answers: list[Tensor] = field(default_factory=list, repr=False)

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.right is None else wilson(sum(self.right), self.problems)

    def row(self) -> dict[str, Any]:
        """Numbers for a table or a file."""
        stated = {name: value for name, value in asdict(self).items() if name != "answers"}
        forwards = self.forwards * self.problems
        accuracy = None if self.right is None else sum(self.right) / self.problems
        rates = {"tokens_per_forward": self.tokens / max(1, forwards), "tokens_per_second": self.tokens / self.seconds}
        return stated | {"accuracy": accuracy, "interval": self.interval} | rates


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95% interval of a share (Wilson 1927): honest also at 0 and at 1."""
    share, spread = right / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / count + spread / (4 * count)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def run(
    denoiser, vocab: Vocab, problems: Sequence[Problem], name: str, recipe: Recipe, budget: float,
    defaults: Defaults, block_length: int, device: torch.device,
) -> Score:  # fmt: skip
    """Answer every problem under a recipe."""
    score, counted, right = Score(name, budget, len(problems)), Counted(denoiser), []
    for number, problem in enumerate(problems):
        length = int((problem.row.answer == vocab.mask).sum())
        settings = Settings(**{"block_length": block_length} | recipe.at(budget, length)).filled(defaults, "text")
        canvas = Canvas([problem.row], vocab, [(0, number)], device)
        began = time.perf_counter()
        denoise(canvas, counted, **settings.slots("text"))
        answer = canvas.row(0)                                                  # waits for the device
        score.seconds += time.perf_counter() - began
        score.answers.append(answer[problem.row.answer == vocab.mask])
        score.tokens += written(answer, problem.row, vocab)
        if problem.right is not None:
            right.append(bool(problem.right(answer)))
    score.right, score.forwards, score.flops = right or None, counted.forwards / len(problems), counted.flops
    score.hits = 1 - counted.computed / max(1, counted.positions)
    return score


def written(answer: Tensor, row: Row, vocab: Vocab) -> int:
    """Tokens written up to the first end, which counts as one."""
    open = row.answer == vocab.mask
    ends = vocab.is_end(answer) & open
    before = (ends.cumsum(0) - ends.long()) == 0
    return int((open & before & (answer != vocab.mask)).sum())


def against(scores: Sequence[Score], baseline: str) -> None:
    """Fill in `same` and `speed` against the baseline at the same budget, or else at its first."""
    there = [score for score in scores if score.recipe == baseline]
    for score in scores:
        plain = next((each for each in there if each.budget == score.budget), there[0] if there else None)
        if plain is None:
            continue
        pairs = list(zip(score.answers, plain.answers, strict=True))
        score.same = sum(float((a == b).float().mean()) for a, b in pairs) / len(pairs)
        score.speed = plain.seconds / score.seconds


def scores(
    denoiser, vocab: Vocab, problems: Sequence[Problem], plan: Sequence[tuple[str, float]], defaults: Defaults,
    block_length: int, device: torch.device, recipes: Mapping[str, Recipe] = RECIPES,
) -> Iterator[Score]:  # fmt: skip
    """Every (recipe, budget) of a plan; one problem first, so that no one pays for warming up."""
    name, budget = plan[-1]
    run(denoiser, vocab, problems[:1], "", recipes[name], budget, defaults, block_length, device)
    for name, budget in plan:
        yield run(denoiser, vocab, problems, name, recipes[name], budget, defaults, block_length, device)


def random_problems(vocab: Vocab, count: int, image: int, length: int) -> list[Problem]:
    """Rows without meaning: a short prompt, a picture of `image` codes, an answer of `length` masks."""
    load = Load("ask", grid_of(image), answer=length)
    return [Problem(random_row(load, vocab, number)) for number in range(count)]


def grid_of(codes: int) -> tuple[int, int]:
    """The grid nearest to a square."""
    height = next((side for side in range(math.isqrt(codes), 0, -1) if codes % side == 0), 0)
    return height, codes // height if height else 0
