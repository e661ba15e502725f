"""Held-out splits by fact set, not by string: another wording of a held-out fact set is held out too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TypeVar

import numpy as np

from .captions import Caption, sample_caption
from .edits import KINDS, Edit, sample_edit
from .references import REFERENCES, Reference
from .scene import Scene, World

SHARE = 0.15
NEVER_HELD_OUT = ("single", "counting")
TRIES = 10_000

T = TypeVar("T")


def held_out(key: str, share: float = SHARE) -> bool:
    """Whether a fact set belongs to the test split: a stable hash, the same on every machine.

    The caption families single and counting are never asked: they have too few fact sets (one a shape, four
    a shape) to hold any out, so their test captions are the training ones.
    """
    digest = blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def caption_held_out(caption: Caption) -> bool:
    """Whether a caption is kept from training. The background does not count: it is a bystander."""
    return caption.family not in NEVER_HELD_OUT and held_out(caption.claim.key(background=False))


def _draw(sample: Callable[[], T], wanted: Callable[[T], bool], what: str) -> T:
    """The first sample that is wanted."""
    for _ in range(TRIES):
        drawn = sample()
        if wanted(drawn):
            return drawn
    raise ValueError(f"no {what} in {TRIES} draws: the split leaves none")


def train_caption(world: World, family: str, rng: np.random.Generator) -> Caption:
    """A caption whose fact set may be trained on."""
    return _draw(
        lambda: sample_caption(world, family, rng), lambda c: not caption_held_out(c), f"{family} caption"
    )


def test_caption(world: World, family: str, rng: np.random.Generator) -> Caption:
    """A caption whose fact set is held out (single, counting: any)."""
    if family in NEVER_HELD_OUT:
        return sample_caption(world, family, rng)
    return _draw(lambda: sample_caption(world, family, rng), caption_held_out, f"held-out {family} caption")


def train_scene(world: World, rng: np.random.Generator, n: int | None = None) -> Scene:
    """A scene that may be trained on, of `n` objects (None: drawn)."""
    return _draw(lambda: world.sample(rng, n), lambda scene: not held_out(scene.key()), "scene")


def test_scene(world: World, rng: np.random.Generator, n: int | None = None) -> Scene:
    """A held-out scene of `n` objects (None: drawn)."""
    return _draw(lambda: world.sample(rng, n), lambda scene: held_out(scene.key()), "held-out scene")


def train_edit(world: World, rng: np.random.Generator, kinds: Sequence[str] = tuple(KINDS)) -> Edit:
    """An edit whose source scene may be trained on."""
    return _draw(lambda: sample_edit(world, rng, kinds), lambda edit: not held_out(edit.source.key()), "edit")


def test_edit(world: World, rng: np.random.Generator, kinds: Sequence[str] = tuple(KINDS)) -> Edit:
    """An edit of a held-out source scene."""
    return _draw(
        lambda: sample_edit(world, rng, kinds), lambda edit: held_out(edit.source.key()), "held-out edit"
    )


def _reference_held_out(reference: Reference) -> bool:
    return held_out("+".join(scene.key() for scene in reference.sources))


def train_reference(world: World, kind: str, rng: np.random.Generator) -> Reference:
    """A reference whose source pictures, together, may be trained on."""
    return _draw(lambda: REFERENCES[kind](world, rng), lambda r: not _reference_held_out(r), kind)


def test_reference(world: World, kind: str, rng: np.random.Generator) -> Reference:
    """A reference whose source pictures, together, are held out."""
    return _draw(lambda: REFERENCES[kind](world, rng), _reference_held_out, f"held-out {kind}")


# pytest collects functions called test_*: these are none.
for _function in (test_caption, test_scene, test_edit, test_reference):
    _function.__test__ = False
