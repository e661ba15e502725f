"""Everything dimoo-tiny learns to answer with a picture. A new task is one function in PICTURE_TASKS.

Prompts are built by the same tables as at inference: `edit` is a kind of `dimoo.tasks.edit.EDIT_KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dimoo.tasks.edit import EDIT_KINDS
from dimoo_training import world as w
from dimoo_training.world.captions import describe
from dimoo_training.world.maps import draw_map
from dimoo_training.world.references import REFERENCES
from dimoo_training.world.render import enlarge, render
from dimoo_training.world.scene import pick

CAPTION_MIX = {"single": 1.5, "two": 2.0, "counting": 1.2, "colors": 1.8, "position": 2.5, "attributes": 2.5}
EDIT_MIX = {
    "recolor": 1.5, "remove": 1.5, "reshape": 1.0, "resize": 0.7, "add": 1.3, "move": 1.2, "background": 0.7,
    "swap": 1.2,
}  # fmt: skip
MAPS = {"canny": "edges", "mask": "mask", "depth": "depth"}
"""Kinds of `EDIT_KINDS` -> maps of the world."""


@dataclass(frozen=True, slots=True)
class Map:
    """The map of a scene, as a picture to draw or to draw from."""

    kind: str
    scene: w.Scene


Picture = w.Scene | Map


def paint(picture: Picture, scale: int = 1) -> np.ndarray:
    """uint8 (64 scale, 64 scale, 3); maps are enlarged, scenes drawn finer."""
    if isinstance(picture, Map):
        return enlarge(draw_map(picture.scene, picture.kind), scale)
    return render(picture, scale)


@dataclass(frozen=True, slots=True)
class PictureTask:
    """What is said, the pictures shown, and the picture to answer with. `edit` None: drawn from the text alone."""

    edit: str | None
    text: str
    sources: tuple[Picture, ...]
    target: Picture

    @property
    def prompt(self) -> tuple[str, str]:
        """System prompt and instruction."""
        if self.edit is None:
            return "text_to_image", self.text
        system, fixed = EDIT_KINDS[self.edit]
        return system, fixed or self.text


def draw_from(mix: Mapping[str, float], rng: np.random.Generator) -> str:
    """A key of `mix`, with probability proportional to its value."""
    shares = np.cumsum(list(mix.values()))
    return list(mix)[int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))]


def draw(world: w.World, rng: np.random.Generator) -> PictureTask:
    """A picture of a caption of the six families."""
    caption = w.train_caption(world, draw_from(CAPTION_MIX, rng), rng)
    return PictureTask(None, caption.text, (), w.scene_for(caption.claim, world, rng))


def full(world: w.World, rng: np.random.Generator) -> PictureTask:
    """A picture of a full description."""
    caption = w.train_caption(world, "full", rng)
    return PictureTask(None, caption.text, (), w.scene_for(caption.claim, world, rng))


def edit(world: w.World, rng: np.random.Generator) -> PictureTask:
    """An instruction about a picture."""
    kinds = {kind: share for kind, share in EDIT_MIX.items() if kind != "resize" or len(world.sizes) > 1}
    change = w.train_edit(world, rng, (draw_from(kinds, rng),))
    return PictureTask("edit_other", change.text, (change.source,), change.target)


def dense(world: w.World, rng: np.random.Generator) -> PictureTask:
    """The map of a picture."""
    name, scene = pick(tuple(MAPS), rng), w.train_scene(world, rng)
    return PictureTask(f"{name}_dense", "", (scene,), Map(MAPS[name], scene))


def control(world: w.World, rng: np.random.Generator) -> PictureTask:
    """A picture with the map that is given; colours and background come from the words."""
    name, scene = pick(tuple(MAPS), rng), w.train_scene(world, rng)
    text = describe(scene, rng, sized=False).text
    return PictureTask(f"{name}_control", text, (Map(MAPS[name], scene),), scene)


def _reference(kind: str, edit: str) -> Callable[[w.World, np.random.Generator], PictureTask]:
    def make(world: w.World, rng: np.random.Generator) -> PictureTask:
        made = w.train_reference(world, kind, rng)
        return PictureTask(edit, made.text, made.sources, made.target)

    return make


PICTURE_TASKS: dict[str, Callable[[w.World, np.random.Generator], PictureTask]] = {
    "draw": draw, "full": full, "edit": edit, "dense": dense, "control": control,
    "subject": _reference("subject", "subject_driven"), "style": _reference("style", "image_ref_transfer"),
}  # fmt: skip
assert set(REFERENCES) <= set(PICTURE_TASKS)
