"""How to sample: the numbers a user may turn, with the checkpoint's own defaults, and the slots they choose."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from dimoo.blocks import BLOCKS, BlockSchedule, LeftToRight
from dimoo.cache import CACHES, NoCache
from dimoo.combinations import refuse
from dimoo.guidance import GUIDERS, Guider, NestedGuidance, NoGuidance, TextGuidance, TextImageGuidance
from dimoo.presets import read_preset
from dimoo.resolve import build, resolve
from dimoo.sampling import (
    ANNEALINGS,
    CONFIDENCES,
    EDITINGS,
    NOISES,
    PROCESSORS,
    QUOTAS,
    REJECTIONS,
    REMASKINGS,
    RULES,
    SMOOTHINGS,
    AnswerEnd,
    EarlyFinish,
    NeverEarly,
    NoMasks,
    Scheduler,
    TokenEditing,
    TransferRule,
    Truncation,
)  # fmt: skip
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
        preset: `exact`, `published`, `balanced` or `fast`, see `presets`; what is given besides wins.
        cache: a key of CACHES or a policy object; None: the preset's.
        cache_ratio, cache_warmup, cache_refresh, cache_drift: numbers of the cache, see `MaxLogitCache`.
        early_finish: commit the rest at once when all of it is this probable; None: the preset's.
        rule: transfer rule, of RULES; None: by quota. Rules that decide themselves need no number of steps.
        confidence: how candidates are ordered, of CONFIDENCES.
        processors: of PROCESSORS, several with commas between them or as a list.
        reject: damping of early end tokens, of REJECTIONS. remask: of REMASKINGS. editing: of EDITINGS.
        windows: which part is open, of BLOCKS; None: everything for pictures, blocks from left to right for text.
        smoothing: soft embeddings of undecided positions, of SMOOTHINGS.
        unroll: steps between two looks of the host at the device, for rules that decide themselves.
        best_of: tries of each drawing, of which the model itself chooses the best; None: one, unjudged.
        search: how the tries are spent, of SEARCHES; None: `best-of`.
        verifier: what a drawing is checked for, a key of VERIFIERS or a function of the prompt; None: `facts`.

    Parts from `rule` to `smoothing`, and the cache, may carry settings of their own: `rule="threshold(threshold=0.8)"`.
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
    rule: Any = None
    confidence: Any = None
    processors: Any = None
    reject: Any = None
    remask: Any = None
    editing: Any = None
    windows: Any = None
    smoothing: Any = None
    unroll: int | None = None
    best_of: int | None = None
    search: Any = None
    verifier: Any = None

    def __post_init__(self):
        for name in ("guidance_scale", "image_guidance_scale", "temperature", "rank_temperature"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be 0 or more, got {value}")
        read_preset(self.preset)
        if self.best_of is None and (self.search or self.verifier):
            raise ValueError("best_of must say how many tries a search has, got None")
        for name in ("num_inference_steps", "block_length", "unroll", "best_of"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        refuse(rule=self.transfer_rule(), quota=self.quota, edit=self.editor(), cache=self.cache_policy(),
               tries=self.best_of)  # fmt: skip

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
        return rule if self.finish_bound is None else EarlyFinish(rule, self.finish_bound)

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
            edit=self.editor(),
            unroll=self.unroll or 1,
        )

    def editor(self) -> TokenEditing | None:
        return self.editing and build(self.editing, EDITINGS, "editing")

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
        windows = self.windows or ("whole" if kind != "text" else "left-to-right")
        offered = {"steps": self.num_inference_steps, "block_length": self.block_length}
        offered = {name: value for name, value in offered.items() if value is not None}
        return build(windows, BLOCKS, "block schedule", **offered)

    def check_length(self, length: int) -> None:
        """Raises ValueError for an answer of `length` tokens that does not divide into the blocks asked for."""
        blocks = self.blocks("text") if self.block_length is not None else None
        if isinstance(blocks, LeftToRight):
            blocks.check(length)

    def slots(self, kind: str) -> dict[str, Any]:
        """The arguments of `denoise` for a kind of task."""
        return {
            "scheduler": self.scheduler(), "guider": self.guider(), "blocks": self.blocks(kind),
            "cache": self.cache_policy(), "stop": self.stop(kind),
        }  # fmt: skip

    def stop(self, kind: str) -> StoppingCriteria:
        if kind == "text":
            return AnswerEnd()
        return NeverEarly() if self.finish_bound is None else NoMasks()

    def searcher(self) -> tuple[Any, Checks] | None:
        """The search and what it checks; None where there is one try."""
        if self.best_of is None:
            return None
        method = build(self.search or "best-of", SEARCHES, "search")
        return method, resolve(self.verifier or "facts", VERIFIERS, "verifier")

    def cache_policy(self):
        preset = read_preset(self.preset)
        policy = preset.policy() if self.cache is None else build(self.cache, CACHES, "cache")
        given = {name: getattr(self, f"cache_{name}") for name in ("ratio", "warmup", "refresh", "drift")}
        given = {name: value for name, value in given.items() if value is not None}
        for name in given:
            if name not in getattr(policy, "__dataclass_fields__", {}):
                named = "none" if isinstance(policy, NoCache) else type(policy).__name__
                raise ValueError(f"cache_{name} is for the max-logit cache, and the cache is {named}")
        policy = replace(policy, **given) if given else policy
        return build(self.smoothing, SMOOTHINGS, "smoothing", cache=policy) if self.smoothing else policy


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


