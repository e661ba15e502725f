"""How to sample: the numbers a user may turn, with the checkpoint's own defaults, and the slots they choose."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from dimoo.blocks import BLOCKS, BlockSchedule
from dimoo.cache import CACHES
from dimoo.guidance import GUIDERS, Guider, NestedGuidance, NoGuidance, TextGuidance, TextImageGuidance
from dimoo.resolve import build, resolve
from dimoo.sampling import ANNEALINGS, CONFIDENCES, NOISES, QUOTAS, AnswerEnd, NeverEarly, Scheduler, Truncation
from dimoo.sampling.editing import EDITINGS
from dimoo.sampling.processors import PROCESSORS, REJECTIONS
from dimoo.sampling.remasking import REMASKINGS
from dimoo.sampling.rules import RULES, TransferRule
from dimoo.sampling.smoothing import SMOOTHINGS
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
        cache: a key of CACHES or a policy object.
        rule: transfer rule, of RULES; None: by quota. Rules that decide themselves need no number of steps.
        confidence: how candidates are ordered, of CONFIDENCES.
        processors: of PROCESSORS, several with commas between them or as a list.
        reject: damping of early end tokens, of REJECTIONS. remask: of REMASKINGS. editing: of EDITINGS.
        windows: which part is open, of BLOCKS; None: everything for pictures, blocks from left to right for text.
        smoothing: soft embeddings of undecided positions, of SMOOTHINGS.
        unroll: steps between two looks of the host at the device, for rules that decide themselves.

    Each of these, and the cache, may carry settings of its own: `rule="threshold(threshold=0.8)"`.
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
    rule: Any = None
    confidence: Any = None
    processors: Any = None
    reject: Any = None
    remask: Any = None
    editing: Any = None
    windows: Any = None
    smoothing: Any = None
    unroll: int | None = None

    def __post_init__(self):
        for name in ("guidance_scale", "image_guidance_scale", "temperature", "rank_temperature"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be 0 or more, got {value}")
        for name in ("num_inference_steps", "block_length", "unroll"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.quota is not None and not self.transfer_rule().uses_quota:
            fitting = [name for name, rule in RULES.items() if rule.uses_quota]
            raise ValueError(
                f"rule {self.rule!r} decides itself how many tokens it writes, so quota {self.quota!r} has no meaning; "
                f"a quota goes with: {', '.join(fitting)}"
            )

    def filled(self, defaults: Defaults, kind: str) -> Settings:
        """The same with the checkpoint's defaults for a kind of task (`draw`, `edit`, `text`) in place of None."""
        picture, edit = kind != "text", kind == "edit"
        wanted = {
            "num_inference_steps": defaults.steps if picture else defaults.text_steps,
            "guidance_scale": {"draw": defaults.guidance_scale, "edit": defaults.text_guidance_scale}.get(kind, 0.0),
            "image_guidance_scale": defaults.image_guidance_scale if edit else 0.0,
            "guidance": {"draw": "text", "edit": "text+image"}.get(kind, "none"),
            "temperature": {"draw": defaults.temperature, "edit": defaults.edit_temperature}.get(kind, 0.0),
            "quota": ("cosine" if picture else "even") if self.transfer_rule().uses_quota else None,
            "block_length": defaults.block_length,
        }
        return replace(self, **{name: value for name, value in wanted.items() if getattr(self, name) is None})

    def transfer_rule(self) -> TransferRule:
        rule = build(self.rule or "quota", RULES, "rule")
        if missing := [name for name in ("adaptive", "uses_quota") if not hasattr(rule, name)]:
            raise ValueError(f"rule {self.rule!r} has no {missing[0]!r}: see TransferRule in dimoo/sampling/rules.py")
        return rule

    def scheduler(self) -> Scheduler:
        return Scheduler(
            quota=resolve(self.quota or "even", QUOTAS, "quota"),
            temperature=self.temperature,
            rank_temperature=self.rank_temperature,
            anneal=resolve(self.anneal, ANNEALINGS, "annealing"),
            truncation=Truncation(self.top_k, self.top_p, self.min_p),
            noise=build(self.noise, NOISES, "noise"),
            confidence=resolve(self.confidence or "probability", CONFIDENCES, "confidence"),
            rule=self.transfer_rule(),
            processors=[build(one, PROCESSORS, "processor") for one in listed(self.processors)],
            reject=self.reject and build(self.reject, REJECTIONS, "early rejection"),
            remask=self.remask and build(self.remask, REMASKINGS, "remasking"),
            edit=self.editing and build(self.editing, EDITINGS, "editing"),
            unroll=self.unroll or 1,
        )

    def guider(self) -> Guider:
        guider = self.guidance
        if isinstance(guider, str):
            guider = resolve(guider, SCALED, "guider")(self.guidance_scale, self.image_guidance_scale)
        if self.guidance_interval is not None:
            guider = GUIDERS["interval"](guider, *self.guidance_interval)
        return guider

    def blocks(self, kind: str) -> BlockSchedule:
        windows = self.windows or ("whole" if kind != "text" else "left-to-right")
        offered = {"steps": self.num_inference_steps, "block_length": self.block_length}
        return build(windows, BLOCKS, "block schedule", **offered)

    def stop(self, kind: str) -> StoppingCriteria:
        return AnswerEnd() if kind == "text" else NeverEarly()

    def cache_policy(self):
        cache = build(self.cache, CACHES, "cache")
        return build(self.smoothing, SMOOTHINGS, "smoothing", cache=cache) if self.smoothing else cache


SCALED = {
    "none": lambda text, image: NoGuidance(),
    "text": lambda text, image: TextGuidance(text),
    "text+image": TextImageGuidance,
    "nested": NestedGuidance,
}
"""Guider name -> from the text and image scales."""


def listed(given: Any) -> list:
    """Several specifications: a list of them, one of them, or a string with commas between them."""
    if given is None or isinstance(given, list | tuple):
        return list(given or ())
    return [part.strip() for part in re.split(r",(?![^()]*\))", given)] if isinstance(given, str) else [given]


