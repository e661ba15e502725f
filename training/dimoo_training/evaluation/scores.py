"""Values of many items, and the shares with intervals that are made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Score:
    """A mean over `count` items (or over kinds of items) with its 95% bootstrap interval."""

    name: str
    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.name:24} {self.mean:6.1%}  [{self.low:6.1%}, {self.high:6.1%}]  n={self.count}"


def bootstrap(name: str, strata: Sequence[Sequence[float]], rng: np.random.Generator, rounds: int = 2000) -> Score:
    """Mean over strata of their means; items are drawn again within each stratum, 95% percentile interval."""
    values = [np.asarray(stratum, dtype=float) for stratum in strata]
    again = np.mean([v[rng.integers(0, len(v), (rounds, len(v)))].mean(1) for v in values], axis=0)
    low, high = np.quantile(again, [0.025, 0.975])
    mean = float(np.mean([v.mean() for v in values]))
    return Score(name, mean, float(low), float(high), sum(map(len, values)))


MEANS: dict[str, tuple[str, str]] = {
    "t2i_mean": ("t2i_", ""), "qa_accuracy": ("qa_kind_", ""), "edit_target": ("edit_", "_target"),
    "edit_preserved": ("edit_", "_preserved"),
}  # fmt: skip
"""Name -> prefix and suffix of the kinds that it is the mean of."""


class Scores(dict[str, Score]):
    """Every score by name, in the order of measuring, means last."""

    @classmethod
    def of(cls, outcomes: Mapping[str, Sequence[float]], seed: int = 0) -> Scores:
        """From the values of every kind; each score has its own stream, so that one part alone gives the same."""
        scores = cls()
        strata = {name: [values] for name, values in outcomes.items()}
        for name, (prefix, suffix) in MEANS.items():
            kinds = [v for k, v in outcomes.items() if k.startswith(prefix) and k.endswith(suffix)]
            strata |= {name: kinds} if kinds else {}
        for name, values in strata.items():
            scores[name] = bootstrap(name, values, np.random.default_rng([seed, *name.encode()]))
        return scores

    def flat(self) -> dict[str, float]:
        """`t2i_single`, `t2i_single_low`, `t2i_single_high`, ..."""
        return {
            key: round(value, 4)
            for name, s in self.items()
            for key, value in ((name, s.mean), (f"{name}_low", s.low), (f"{name}_high", s.high))
        }

    def write(self, path: Path) -> None:
        """The flat form as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.flat(), indent=1) + "\n")
