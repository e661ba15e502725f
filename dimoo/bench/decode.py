"""Recipes for text on problems with a checker: how often they are right, and what that takes.

One problem at a time, as the field reports it, so forwards are those of the problem and not of the slowest neighbour.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from dimoo.canvas import Canvas, Row
from dimoo.recipes import Recipe
from dimoo.sampling import denoise
from dimoo.settings import Defaults, Settings
from dimoo.vocab import Vocab


@dataclass(frozen=True)
class Problem:
    """row: what is to be filled. right: whether the ids of the filled answer are a right answer; None: not known."""

    row: Row
    right: Callable[[Tensor], bool] | None = None


@dataclass
class Counted:
    """A denoiser that counts the rows it computes and those a full pass would."""

    denoiser: Any
    computed: int = 0
    all: int = 0

    def __call__(self, input_ids: Tensor, *, rows: Tensor | None = None, **options):
        self.all += input_ids.numel()
        self.computed += input_ids.numel() if rows is None else rows.numel()
        return self.denoiser(input_ids, rows=rows, **options)

    def embed(self, *given):
        return self.denoiser.embed(*given)


@dataclass
class Score:
    """What one recipe did at one budget, over all problems.

    tokens: written up to the end of each answer. same: share of positions with the ids of the baseline.
    speed: how many times faster than the baseline. hits: share of rows that a cache spared.
    """

    recipe: str
    budget: float
    problems: int = 0
    right: int | None = None
    forwards: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    hits: float = 0.0
    same: float | None = None
    speed: float | None = None
    answers: list[Tensor] = field(default_factory=list, repr=False)

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.right is None else wilson(self.right, self.problems)

    def row(self) -> dict[str, Any]:
        """Numbers for a table or a file."""
        stated = {name: value for name, value in asdict(self).items() if name != "answers"}
        forwards = self.forwards * self.problems
        accuracy = None if self.right is None else self.right / self.problems
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
    score, counted, forwards = Score(name, budget), Counted(denoiser), 0
    for number, problem in enumerate(problems):
        length = int((problem.row.answer == vocab.mask).sum())
        settings = Settings(**{"block_length": block_length} | recipe.at(budget, length)).filled(defaults, "text")
        canvas = Canvas([problem.row], vocab, [(0, number)], device)
        slots = {
            "scheduler": settings.scheduler(), "blocks": settings.blocks("text"), "cache": settings.cache_policy(),
            "stop": settings.stop("text"),
        }  # fmt: skip
        began = time.perf_counter()
        forwards += denoise(canvas, counted, **slots)
        answer = canvas.row(0)                                                  # waits for the device
        score.seconds += time.perf_counter() - began
        score.answers.append(answer)
        score.tokens += written(answer, problem.row, vocab)
        if problem.right is not None:
            score.right = (score.right or 0) + problem.right(answer)
    score.problems, score.forwards = len(problems), forwards / len(problems)
    score.hits = 1 - counted.computed / max(1, counted.all)
    return score


def written(answer: Tensor, row: Row, vocab: Vocab) -> int:
    """Tokens written up to the first end, which counts as one."""
    open = row.answer == vocab.mask
    ends = torch.isin(answer, torch.tensor(vocab.ends)) & open
    before = (ends.cumsum(0) - ends.long()) == 0
    return int((open & before & (answer != vocab.mask)).sum())


def compare(scores: Sequence[Score], baseline: str) -> None:
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
    denoiser, vocab: Vocab, problems: Sequence[Problem], recipes: dict[str, Recipe], defaults: Defaults,
    block_length: int, device: torch.device, budgets: Sequence[float] | None = None,
) -> Iterator[Score]:  # fmt: skip
    """Every recipe at each of its budgets, or at those given; one problem first, so that no one pays for warming up."""
    first, *_ = recipes.values()
    run(denoiser, vocab, problems[:1], "", first, first.budgets[-1], defaults, block_length, device)
    for name, recipe in recipes.items():
        for budget in budgets or recipe.budgets:
            yield run(denoiser, vocab, problems, name, recipe, budget, defaults, block_length, device)


SIZES = {"1m": (128, 4, 512), "100m": (768, 12, 8192)}
"""Size -> width, layers, vocabulary of a model of random weights."""
CODES = 256


def random_model(size: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, Vocab]:
    """A model of random weights and its vocabulary, for timing. Raises ValueError for a size that there is not."""
    from dimoo.model import LLaDAConfig, LLaDAForMultiModalGeneration

    if size not in SIZES:
        raise ValueError(f"unknown random size {size!r}; allowed: {', '.join(SIZES)}")
    width, layers, count = SIZES[size]
    special = ("pad", "mask", "newline", "boi", "eoi", "uncondition", "boa", "eoa")
    ids = {name: number for number, name in enumerate(special)}
    vocab = Vocab(**ids, image_offset=count - CODES, codebook_size=CODES, size=count)
    config = LLaDAConfig(
        d_model=width, n_heads=width // 64, n_layers=layers, mlp_hidden_size=width * 8 // 3, vocab_size=count,
        mask_token_id=vocab.mask, pad_token_id=vocab.pad, image_token_offset=vocab.image_offset, codebook_size=CODES,
        max_sequence_length=8192,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LLaDAForMultiModalGeneration(config).to(dtype)
    return model.to(device).eval(), vocab


def random_problems(vocab: Vocab, count: int, image: int, length: int) -> list[Problem]:
    """Rows without meaning: a short prompt, `image` codes, an answer of `length` masks."""
    made = []
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        words = torch.randint(8, vocab.image_offset, (24,), generator=generator)
        codes = torch.randint(*vocab.codes.indices(vocab.size)[:2], (image,), generator=generator)
        answer = torch.tensor([vocab.boa, *[vocab.mask] * length, vocab.eoa])
        made.append(Problem(Row(answer, {"cond": torch.cat([words, codes])}, vocab.everything)))
    return made
