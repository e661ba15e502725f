"""How to sample: the numbers a user may turn, with the checkpoint's own defaults, and the slots they choose."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from dimoo.blocks import BlockSchedule, LeftToRight, WholeCanvas
from dimoo.cache import CACHES
from dimoo.guidance import GUIDERS, Guider, NestedGuidance, NoGuidance, TextGuidance, TextImageGuidance
from dimoo.resolve import resolve
from dimoo.sampling import ANNEALINGS, NOISES, QUOTAS, AnswerEnd, NeverEarly, Scheduler, Truncation
from dimoo.sampling.stopping import StoppingCriteria
from dimoo.search import SEARCHES
from dimoo.verify import VERIFIERS, Checks


@dataclass(frozen=True)
class Defaults:
    """What a checkpoint is best sampled with; kept in its `model_index.json`. These are Lumina-DiMOO's."""

    height: int = 1024
    width: int = 1024
    image_side: int = 512
    steps: int = 64
    guidance_scale: float = 4.0
    text_guidance_scale: float = 2.5
    image_guidance_scale: float = 4.0
    temperature: float = 1.0
    edit_temperature: float = 1.0
    text_length: int = 128
    text_steps: int = 128
    block_length: int = 32

    @classmethod
    def read(cls, stated: dict[str, Any]) -> Defaults:
        """From a dictionary that may state some of them. Raises ValueError for a name that is none."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(stated) - known)
        if unknown:
            raise ValueError(f"unknown default(s) {', '.join(unknown)}; allowed: {', '.join(sorted(known))}")
        return cls(**stated)


@dataclass(frozen=True)
class Settings:
    """Sampling settings of one call; None means the checkpoint's default for the task.

    Args:
        num_inference_steps: forwards (each of all branches), shared among the blocks of a text.
        guidance_scale: of the text; 0 is off, and w = 1 + scale in the other common convention.
        image_guidance_scale: of the source pictures, in edits.
        guidance: `text`, `text+image` (published), `nested`, or a Guider object; None: by task.
        guidance_interval: (start, stop) progress between which guidance is on.
        temperature: of the token draw; 0 takes the best.
        rank_temperature: noise on the order of commits; None: as temperature.
        anneal: `constant` (published) or `linear`.
        quota: mask schedule, a key of QUOTAS or a function.
        top_k, top_p, min_p: truncation of the token draw.
        noise: `float32`, or `published-bf16` for the released code's low-precision sampling.
        block_length: of text answers.
        cache: a key of CACHES or a policy object.
        best_of: tries of each drawing, of which the model itself chooses the best; None: one, unjudged.
        search: how the tries are spent, a key of SEARCHES or an object; None: `best-of`.
        verifier: what a drawing is checked for, a key of VERIFIERS or a function of the prompt; None: `facts`.
    """

    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    image_guidance_scale: float | None = None
    guidance: str | Guider | None = None
    guidance_interval: tuple[float, float] | None = None
    temperature: float | None = None
    rank_temperature: float | None = None
    anneal: Any = "constant"
    quota: Any = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    noise: Any = "float32"
    block_length: int | None = None
    cache: Any = "none"
    best_of: int | None = None
    search: Any = None
    verifier: Any = None

    def __post_init__(self):
        for name in ("guidance_scale", "image_guidance_scale", "temperature", "rank_temperature"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be 0 or more, got {value}")
        if self.best_of is None and (self.search or self.verifier):
            raise ValueError("best_of must say how many tries a search has, got None")
        for name in ("num_inference_steps", "block_length", "best_of"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")

    def filled(self, defaults: Defaults, kind: str) -> Settings:
        """The same with the checkpoint's defaults for a kind of task (`draw`, `edit`, `text`) in place of None."""
        picture, edit = kind != "text", kind == "edit"
        wanted = {
            "num_inference_steps": defaults.steps if picture else defaults.text_steps,
            "guidance_scale": {"draw": defaults.guidance_scale, "edit": defaults.text_guidance_scale}.get(kind, 0.0),
            "image_guidance_scale": defaults.image_guidance_scale if edit else 0.0,
            "guidance": {"draw": "text", "edit": "text+image"}.get(kind, "none"),
            "temperature": {"draw": defaults.temperature, "edit": defaults.edit_temperature}.get(kind, 0.0),
            "quota": "cosine" if picture else "even",
            "block_length": defaults.block_length,
        }
        return replace(self, **{name: value for name, value in wanted.items() if getattr(self, name) is None})

    def scheduler(self) -> Scheduler:
        return Scheduler(
            quota=resolve(self.quota, QUOTAS, "quota"),
            temperature=self.temperature,
            rank_temperature=self.rank_temperature,
            anneal=resolve(self.anneal, ANNEALINGS, "annealing"),
            truncation=Truncation(self.top_k, self.top_p, self.min_p),
            noise=_made(resolve(self.noise, NOISES, "noise")),
        )

    def guider(self) -> Guider:
        guider = self.guidance
        if isinstance(guider, str):
            guider = resolve(guider, SCALED, "guider")(self.guidance_scale, self.image_guidance_scale)
        if self.guidance_interval is not None:
            guider = GUIDERS["interval"](guider, *self.guidance_interval)
        return guider

    def blocks(self, kind: str) -> BlockSchedule:
        if kind != "text":
            return WholeCanvas(self.num_inference_steps)
        return LeftToRight(self.num_inference_steps, self.block_length)

    def stop(self, kind: str) -> StoppingCriteria:
        return AnswerEnd() if kind == "text" else NeverEarly()

    def searcher(self) -> tuple[Any, Checks] | None:
        """The search and what it checks; None where there is one try."""
        if self.best_of is None:
            return None
        method = _made(resolve(self.search or "best-of", SEARCHES, "search"))
        return method, resolve(self.verifier or "facts", VERIFIERS, "verifier")

    def cache_policy(self):
        return _made(resolve(self.cache, CACHES, "cache"))


SCALED = {
    "none": lambda text, image: NoGuidance(),
    "text": lambda text, image: TextGuidance(text),
    "text+image": TextImageGuidance,
    "nested": NestedGuidance,
}
"""Guider name -> from the text and image scales."""


def _made(variant):
    """An object as it is, a class built with its defaults."""
    return variant() if isinstance(variant, type) else variant


