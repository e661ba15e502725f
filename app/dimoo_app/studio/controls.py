"""Controls that several tabs have, each written once: the seed, and how to sample."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from dimoo.cache import CACHES
from dimoo.presets import PRESETS
from dimoo.sampling import ANNEALINGS
from dimoo.search import SEARCHES
from dimoo.settings import Defaults, Settings

SEEDS = 2**31
OWN = "the model's own"


@dataclass(frozen=True)
class Seed:
    """A number, a dice and a lock: unlocked, every run draws another seed and shows it."""

    number: gr.Number
    locked: gr.Checkbox

    @classmethod
    def build(cls, tab: str) -> Seed:
        with gr.Group(), gr.Row(elem_classes="seeds"):
            number = gr.Number(throw(), label="Seed", precision=0, minimum=0, min_width=110, scale=3,
                               elem_id=f"{tab}-seed")  # fmt: skip
            dice = gr.Button("Roll", size="sm", min_width=60, scale=1, elem_id=f"{tab}-dice")
            locked = gr.Checkbox(False, label="Keep", min_width=80, scale=1, container=False, elem_id=f"{tab}-lock")
        dice.click(throw, None, number, queue=False, api_visibility="private", show_progress="hidden")
        return cls(number, locked)

    @property
    def inputs(self) -> list[Any]:
        return [self.number, self.locked]


def throw() -> int:
    return secrets.randbelow(SEEDS)


def seed_of(number: float | None, locked: bool) -> int:
    """The seed of this run."""
    return int(number) if locked and number is not None else throw()


@dataclass(frozen=True)
class Sampling:
    """How to sample. What is left at the checkpoint's own value is not passed on, so a preset can choose it.

    `names` are fields of `Settings`, `own` their values when nobody touched them; `inputs` is in the same order.
    """

    names: Sequence[str]
    own: Sequence[Any]
    inputs: Sequence[Any]

    @classmethod
    def build(cls, tab: str, defaults: Defaults, kind: str = "draw", search: bool = False) -> Sampling:
        """`search` adds tries to choose from, which only drawings from words can have."""
        filled = Settings().filled(defaults, kind)
        parts: dict[str, Any] = {}
        parts["preset"] = gr.Dropdown([OWN, *PRESETS], value=OWN, label="Speed against quality",
                                      elem_id=f"{tab}-preset")  # fmt: skip
        steps = filled.num_inference_steps
        parts["num_inference_steps"] = gr.Slider(1, max(128, steps), steps, step=1, label="Steps",
                                                 info="More are slower and usually better.",
                                                 elem_id=f"{tab}-steps")  # fmt: skip
        for name, label, info in GUIDANCE.get(kind, ()):
            own = getattr(filled, name)
            parts[name] = gr.Slider(0, max(12, own), own, step=0.1, label=label, info=info)
        parts["temperature"] = gr.Slider(0, max(2, filled.temperature), filled.temperature, step=0.05,
                                         label="Temperature", info="0 takes the likeliest token.")  # fmt: skip
        if kind != "text":
            parts["anneal"] = gr.Dropdown(list(ANNEALINGS), value=filled.anneal, label="Chance in the order",
                                          info="linear: it fades towards the end.")  # fmt: skip
        parts["cache"] = gr.Dropdown([OWN, *CACHES], value=OWN, label="Reuse between steps",
                                     info="max-logit is faster on long sequences.")  # fmt: skip
        own = {name: OWN if name in ("preset", "cache") else getattr(filled, name) for name in parts}
        if search:
            with gr.Accordion("Several tries, the best is kept", open=False, elem_id=f"{tab}-search"):
                parts["best_of"] = gr.Slider(1, 16, 1, step=1, label="Tries of each picture", elem_id=f"{tab}-tries",
                                             info="The model asks itself about each and keeps the best.")  # fmt: skip
                parts["search"] = gr.Dropdown(list(SEARCHES), value=next(iter(SEARCHES)), label="How tries are spent",
                                              info="hierarchical: the bad ones end early.")  # fmt: skip
            own |= {"best_of": 1, "search": next(iter(SEARCHES))}
        return cls(list(parts), list(own.values()), list(parts.values()))

    def settings(self, values: Sequence[Any]) -> Settings:
        """Raises ValueError for what cannot be."""
        changed = {name: value for name, own, value in zip(self.names, self.own, values, strict=True) if value != own}
        changed |= {name: int(changed[name]) for name in ("num_inference_steps", "best_of") if name in changed}
        if "best_of" not in changed:
            changed.pop("search", None)         # one try needs no way to choose
        return Settings(**changed)


GUIDANCE = {
    "draw": [("guidance_scale", "Guidance", "How strictly the picture follows the words; 0 is off.")],
    "edit": [
        ("guidance_scale", "Follow the words", "Higher: the instruction is carried out more boldly. 0 is off."),
        ("image_guidance_scale", "Stay near the picture", "Higher: more of the source picture is kept. 0 is off."),
    ],
}
"""Kind of task -> its guidance scales: field, label, what it does."""


def sizes(defaults: Defaults, ratio: int) -> dict[str, tuple[int, int]]:
    """Label -> (height, width): the model's own size, and others of about its area that it can draw."""
    side = round((defaults.height * defaults.width) ** 0.5)
    shapes = {"square": (1, 1), "landscape": (0.75, 1.25), "portrait": (1.25, 0.75), "wide": (0.5, 1.5)}
    found = {f"{defaults.width} × {defaults.height}": (defaults.height, defaults.width)}
    for name, (tall, wide) in shapes.items():
        height, width = (max(ratio, round(side * part / ratio) * ratio) for part in (tall, wide))
        found.setdefault(f"{width} × {height}", (height, width)) if name != "square" else None
    return found
