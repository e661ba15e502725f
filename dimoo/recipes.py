"""Named recipes for text: a table of slot settings, nothing more.

A recipe is fields of `Settings`, in which `{budget}` stands for the number that trades quality for forwards. Steps are
given as a share of the answer's length; where nothing is said about them a recipe may take one step a token, which
rules that decide themselves do not use up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """source: where it comes from. settings: fields of `Settings`. budgets: numbers tried by the benchmark, the most
    careful first. steps: share of the answer's length, `{budget}` or `log2`, or None for one step a token."""

    source: str
    settings: Mapping[str, Any]
    budgets: tuple[float, ...] = (1.0, 0.5, 0.25)
    steps: str | None = None

    def at(self, budget: float, length: int) -> dict[str, Any]:
        """Fields of `Settings` for an answer of `length` masks."""
        shares = {None: 1.0, "{budget}": budget}
        steps = int(math.log2(max(2, length))) if self.steps == "log2" else max(1, round(shares[self.steps] * length))
        filled = {name: value.format(budget=budget) if isinstance(value, str) else value
                  for name, value in self.settings.items()}  # fmt: skip
        return {"num_inference_steps": steps, "temperature": 0.0} | filled


STEPS = (1.0, 0.5, 0.25, 0.125)
BARS = (0.95, 0.9, 0.8, 0.6)
WHOLE = {"windows": "whole"}

RECIPES: dict[str, Recipe] = {
    "llada": Recipe("LLaDA, blocks from left to right", {}, STEPS, "{budget}"),
    "llada-whole": Recipe("LLaDA, fully diffusive", WHOLE, STEPS, "{budget}"),
    "llada-margin": Recipe("Kim et al. 2025: order by margin", WHOLE | {"confidence": "margin"}, STEPS, "{budget}"),
    "llada-random": Recipe("LLaDA's random order", WHOLE | {"rule": "random"}, STEPS, "{budget}"),
    "llada-prefix": Recipe("LLaDA with the prefix cache", {"cache": "prefix"}, STEPS, "{budget}"),
    "llada-dual": Recipe("LLaDA with the dual cache", {"cache": "dual"}, STEPS, "{budget}"),
    "llada-vicinity": Recipe("LLaDA with vicinity refresh", {"cache": "vicinity"}, STEPS, "{budget}"),
    "llada-log2": Recipe("as many equal steps as ASS takes", WHOLE, (1.0,), "log2"),
    "threshold": Recipe("threshold, blocks from left to right", {"rule": "threshold(threshold={budget})"}, BARS),
    "fast-dllm": Recipe("Fast-dLLM", {"rule": "threshold(threshold={budget})", "cache": "dual"}, BARS),
    "threshold-whole": Recipe("threshold, fully diffusive", WHOLE | {"rule": "threshold(threshold={budget})"}, BARS),
    "factor": Recipe("Fast-dLLM's factor rule", {"rule": "factor(factor={budget})", "cache": "dual"}, (0.5, 1.0, 2.0)),
    "dinfer": Recipe(
        "dInfer: hierarchical, credit, vicinity refresh",
        {"rule": "hierarchical(high={budget}, low=0.5)", "processors": "credit", "cache": "vicinity"},
        BARS,
    ),
    "smoothing": Recipe(
        "dInfer's iteration smoothing",
        {"rule": "threshold(threshold={budget}, falling=0.02)", "smoothing": "soft", "cache": "vicinity"},
        BARS,
    ),
    "entropy": Recipe("EB-Sampler", WHOLE | {"rule": "entropy-budget(budget={budget})"}, (0.01, 0.1, 0.5, 1.0)),
    "eoser": Recipe("EOSER", WHOLE | {"reject": "eoser"}, STEPS, "{budget}"),
    "ass": Recipe("ASS: doubling steps", WHOLE | {"quota": "powers-of-two"}, (1.0,), "log2"),
    "eoser-ass": Recipe(
        "EOSER and ASS", WHOLE | {"quota": "powers-of-two", "reject": "eoser(low=0.01, ramp=doubling)"}, (1.0,), "log2"
    ),
    "ass-blocks": Recipe("ASS over blocks", {"quota": "powers-of-two", "windows": "powers-of-two(first=3)"}, (1.0,)),
    "remdm": Recipe("ReMDM, capped", WHOLE | {"remask": "remdm-cap(eta=0.05)"}, (2.0, 1.0, 0.5), "{budget}"),
    "remdm-loop": Recipe("ReMDM, looping", WHOLE | {"remask": "remdm-loop(eta=0.1)"}, (2.0, 1.0), "{budget}"),
    "remask": Recipe(
        "dInfer's remasking variant",
        {"rule": "hierarchical(high={budget}, low=0.5)", "remask": "low-confidence(threshold=0.4)"},
        BARS,
    ),
    "edit": Recipe("LLaDA2.1", {"rule": "threshold(threshold={budget})", "editing": "confident"}, BARS),
    "edit-answer": Recipe(
        "LLaDA2.1, earlier blocks stay open to edits",
        {"rule": "threshold(threshold={budget})", "editing": "confident(reach=answer)"},
        BARS,
    ),
    "llada2": Recipe("LLaDA2.0", {"rule": "threshold-or-quota(threshold={budget})"}, BARS),
}
"""Name -> recipe."""


@dataclass(frozen=True)
class Comparison:
    """Two ways of decoding that the field argues about, each a (recipe, budget); they answer the same problems."""

    first: tuple[str, float]
    second: tuple[str, float]
    question: str


COMPARISONS: dict[str, Comparison] = {
    "whole-blocks": Comparison(("llada-whole", 1.0), ("llada", 1.0), "fully diffusive or in blocks, a token a step"),
    "whole-blocks-fast": Comparison(
        ("threshold-whole", 0.9), ("threshold", 0.9), "fully diffusive or in blocks, by threshold"
    ),
    "log-linear": Comparison(("ass", 1.0), ("llada-log2", 1.0), "doubling or equal steps, log2 of the length each"),
    "log-half": Comparison(("ass", 1.0), ("llada-whole", 0.5), "log2 of the length doubling steps, or half of it"),
    "eoser": Comparison(("eoser", 0.5), ("llada-whole", 0.5), "early ends rejected or not, half the length in steps"),
    "eoser-log": Comparison(("eoser-ass", 1.0), ("ass", 1.0), "early ends rejected or not, in doubling steps"),
}
"""Name -> comparison; see `dimoo.bench.compare`."""
