"""Rewards: plain functions from finished samples to one number each, in one table. Larger is better, about 0 to 1.

    def brightness(samples: Samples) -> list[float]:
        return [np.asarray(picture).mean() / 255 for picture in samples.pictures]

is one; a recipe names it `file.py:brightness`, with a weight. Several are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dimoo.resolve import resolve
from dimoo.tasks import Codec
from dimoo_training import world as w
from dimoo_training.puzzles import PUZZLES, countdown, sudoku
from dimoo_training.rl.judge import Judge, right_places
from dimoo_training.rl.rollout import Rollout
from dimoo_training.rl.subjects import Request, image_part, letters_right


@dataclass
class Samples:
    """What was made. Everything costly is made when it is first asked for, and once.

    requests: one a sample, prompt-major. answers: (T,) ids each. judge: who answers questions about pictures.
    options: of rewards that need more, such as `clip_weights`.
    """

    codec: Codec
    requests: Sequence[Request]
    answers: Sequence[Tensor]
    judge: Judge
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, rollout: Rollout, requests: Sequence[Request], codec: Codec, judge: Judge, options=None) -> Samples:
        every = [request for request in requests for _ in range(rollout.group)]
        return cls(codec, every, [rollout.answer(k) for k in range(len(every))], judge, options or {})

    def __len__(self) -> int:
        return len(self.requests)

    @cached_property
    def pictures(self) -> list[Image.Image]:
        return [r.task.finish(self.codec, a) for r, a in zip(self.requests, self.answers, strict=True)]

    @cached_property
    def texts(self) -> list[str]:
        return [r.task.finish(self.codec, a) for r, a in zip(self.requests, self.answers, strict=True)]

    @cached_property
    def scenes(self) -> list[w.Scene | None]:
        """What the oracle reads; None where a cell is malformed."""
        return [parsed.scene for parsed in w.parse_batch(np.stack([np.asarray(p) for p in self.pictures]))]

    @cached_property
    def asked(self) -> list[tuple[int, w.Question]]:
        """(sample, question) of every question about every sample."""
        return [(k, question) for k, request in enumerate(self.requests) for question in request.questions]

    @cached_property
    def letters(self) -> Tensor:
        """p of the four letters for each of `asked`, by the judge, (n, 4)."""
        images = [image_part(self.answers[k]) for k, _ in self.asked]
        return self.judge.probabilities([question for _, question in self.asked], images)

    def by_sample(self, values: Tensor) -> list[float]:
        """Mean over the questions of each sample of values (n,)."""
        owners = torch.tensor([k for k, _ in self.asked], dtype=torch.long)
        total = torch.zeros(len(self)).index_add(0, owners, values.float())
        return (total / torch.bincount(owners, minlength=len(self)).clamp_min(1)).tolist()


def self_consistency(samples: Samples) -> list[float]:
    """Share of the questions that the judge answers right about the picture (Self-GRPO; the report takes the sum)."""
    return samples.by_sample(letters_right(samples.letters, _places(samples))[1])


def self_confidence(samples: Samples) -> list[float]:
    """Mean probability the judge gives to the right letters: fewer ties than a count of hits."""
    return samples.by_sample(letters_right(samples.letters, _places(samples))[0])


def oracle(samples: Samples) -> list[float]:
    """Whether the world's own parser reads what was asked for. An upper bound for experiments: it is the answer key."""
    return [float(r.truth.claim.holds(s)) for r, s in zip(samples.requests, samples.scenes, strict=True)]


def clip(samples: Samples) -> list[float]:
    """Cosine of picture and prompt under open_clip ViT-B-32 with local weights, option `clip_weights`."""
    model, prepare, tokenize = _clip(Path(samples.options.get("clip_weights", "")))
    with torch.inference_mode():
        seen = model.encode_image(torch.stack([prepare(picture) for picture in samples.pictures]))
        said = model.encode_text(tokenize([request.task.prompt for request in samples.requests]))
    return torch.cosine_similarity(seen, said).tolist()


@cache
def _clip(weights: Path):
    try:
        import open_clip
    except ImportError:
        raise ValueError("the reward clip needs open_clip: pip install 'dimoo[eval]'") from None
    if not weights.is_file():
        raise ValueError(f"the reward clip needs local weights of ViT-B-32: no file at {str(weights)!r}")
    model, _, prepare = open_clip.create_model_and_transforms("ViT-B-32", pretrained=str(weights))
    return model.eval(), prepare, open_clip.get_tokenizer("ViT-B-32")


def sudoku_cells(samples: Samples) -> list[float]:
    """d1's reward: share of the empty cells that are right; a clue copied wrongly costs nothing."""
    return [sudoku.cells_right(r.truth, text) for r, text in zip(samples.requests, samples.texts, strict=True)]


def solved(samples: Samples) -> list[float]:
    """Whether a puzzle is right as a whole, by its own checker."""
    pairs = zip(samples.requests, samples.texts, strict=True)
    return [float(PUZZLES[r.kind].right(r.truth, text)) for r, text in pairs]


def countdown_steps(samples: Samples) -> list[float]:
    """d1's reward: 1 for a right way, 0.1 for anything of the right form. Read by a parser, never `eval`."""
    pairs = zip(samples.requests, samples.texts, strict=True)
    return [1.0 if countdown.right(r.truth, text) else 0.1 * _shaped("countdown", text) for r, text in pairs]


def answer_format(samples: Samples) -> list[float]:
    """Whether a text has the form of an answer, right or wrong."""
    return [_shaped(r.kind, text) for r, text in zip(samples.requests, samples.texts, strict=True)]


def _shaped(kind: str, text: str) -> float:
    return float(FORMS[kind](text)) if kind in FORMS else float(bool(text))


def _is_grid(text: str) -> bool:
    grid = sudoku.read(text)
    return grid is not None and 0 not in grid and text == sudoku.write(grid)


def _is_steps(text: str) -> bool:
    steps = text.split(" ")
    return len(steps) == 2 and all(map(countdown.STEP.fullmatch, steps))


FORMS: dict[str, Callable[[str], bool]] = {"sudoku": _is_grid, "countdown": _is_steps}
"""Kind of puzzle -> whether a text looks like its answer; of other kinds anything that was said does."""

Reward = Callable[[Samples], Sequence[float]]

REWARDS: dict[str, Reward] = {
    "self_consistency": self_consistency, "self_confidence": self_confidence, "oracle": oracle, "clip": clip,
    "answer_format": answer_format, "sudoku": sudoku_cells, "solved": solved, "countdown": countdown_steps,
}  # fmt: skip


def total(samples: Samples, weights: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
    """The weighted sum (B,), and each reward (B,) alone.

    Raises ValueError for an unknown reward, and for one that does not give one finite number a sample.
    """
    parts = {}
    for name in weights:
        values = torch.as_tensor(resolve(name, REWARDS, "reward")(samples), dtype=torch.float32)
        if values.shape != (len(samples),) or not bool(values.isfinite().all()):
            raise ValueError(f"reward {name!r} must give {len(samples)} finite numbers, got {values.tolist()}")
        parts[name] = values
    return sum(weight * parts[name] for name, weight in weights.items()), parts


def _places(samples: Samples) -> Tensor:
    return right_places([question for _, question in samples.asked])
