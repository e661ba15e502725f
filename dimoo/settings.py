"""How to sample: the numbers a user may turn, with the checkpoint's own defaults, and the slots they choose."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from dimoo.blocks import BlockSchedule, LeftToRight, WholeCanvas
from dimoo.cache import CACHES, NoCache
from dimoo.guidance import GUIDERS, Guider, NestedGuidance, NoGuidance, TextGuidance, TextImageGuidance
from dimoo.presets import read_preset
from dimoo.resolve import resolve
from dimoo.sampling import (
    ANNEALINGS,
    NOISES,
    QUOTAS,
    AnswerEnd,
    EarlyFinish,
    NeverEarly,
    NoMasks,
    Scheduler,
    Truncation,
)
from dimoo.sampling.stopping import StoppingCriteria


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
        preset: `exact`, `published`, `balanced` or `fast`, see `presets`; what is given besides wins.
        cache: a key of CACHES or a policy object; None: the preset's.
        cache_ratio, cache_warmup, cache_refresh, cache_drift: numbers of the cache, see `MaxLogitCache`.
        early_finish: commit the rest at once when all of it is this probable; None: the preset's.
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
    preset: str = "exact"
    cache: Any = None
    cache_ratio: float | None = None
    cache_warmup: float | None = None
    cache_refresh: int | None = None
    cache_drift: float | None = None
    early_finish: float | None = None

    def __post_init__(self):
        for name in ("guidance_scale", "image_guidance_scale", "temperature", "rank_temperature"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be 0 or more, got {value}")
        read_preset(self.preset)
        for name in ("num_inference_steps", "block_length"):
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

    def scheduler(self) -> Scheduler | EarlyFinish:
        scheduler = Scheduler(
            quota=resolve(self.quota, QUOTAS, "quota"),
            temperature=self.temperature,
            rank_temperature=self.rank_temperature,
            anneal=resolve(self.anneal, ANNEALINGS, "annealing"),
            truncation=Truncation(self.top_k, self.top_p, self.min_p),
            noise=_made(resolve(self.noise, NOISES, "noise")),
        )
        bound = self.finish_bound
        return scheduler if bound is None else EarlyFinish(scheduler, bound)

    @property
    def finish_bound(self) -> float | None:
        return read_preset(self.preset).early_finish if self.early_finish is None else self.early_finish

    def guider(self) -> Guider:
        guider = self.guidance
        if isinstance(guider, str):
            guider = resolve(guider, SCALED, "guider")(self.guidance_scale, self.image_guidance_scale)
        interval = self.guidance_interval or read_preset(self.preset).guidance_interval
        return guider if interval is None else GUIDERS["interval"](guider, *interval)

    def blocks(self, kind: str) -> BlockSchedule:
        if kind != "text":
            return WholeCanvas(self.num_inference_steps)
        return LeftToRight(self.num_inference_steps, self.block_length)

    def stop(self, kind: str) -> StoppingCriteria:
        if kind == "text":
            return AnswerEnd()
        return NeverEarly() if self.finish_bound is None else NoMasks()

    def cache_policy(self):
        preset = read_preset(self.preset)
        policy = preset.policy() if self.cache is None else _made(resolve(self.cache, CACHES, "cache"))
        given = {name: getattr(self, f"cache_{name}") for name in ("ratio", "warmup", "refresh", "drift")}
        given = {name: value for name, value in given.items() if value is not None}
        for name in given:
            if not hasattr(policy, name):
                named = "none" if isinstance(policy, NoCache) else type(policy).__name__
                raise ValueError(f"cache_{name} is for the max-logit cache, and the cache is {named}")
        return replace(policy, **given) if given else policy


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


