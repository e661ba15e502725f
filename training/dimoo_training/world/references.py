"""Pictures made from pictures: a subject drawn in another scene, and the style of one picture on another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .captions import PREFIXES, RELATION_WORDS, scene_for
from .facts import RELATIONS, Claim, Pattern, Relation
from .scene import Object, Scene, World, pick
from .words import a, noun, reword

WITH_BACKGROUND = 0.5  # share of subject prompts that name a background


@dataclass(frozen=True, slots=True)
class Reference:
    """Source pictures, what is said, the claim a right answer fulfils, and one right answer."""

    text: str
    kind: str
    sources: tuple[Scene, ...]
    claim: Claim
    target: Scene


def _exactly(thing: Object, placed: bool = False) -> Pattern:
    return Pattern(thing.shape, thing.color, thing.size, thing.cell if placed else None)


def subject(world: World, rng: np.random.Generator) -> Reference:
    """ "this object to the left of a blue star on a gray background"; the source shows the object alone."""
    source = world.sample(rng, 1)
    shown, name = source.objects[0], pick(("this object", "the object"), rng)
    patterns, words, relation = [_exactly(shown)], name, None
    form = int(rng.integers(3))  # alone, with another, in a relation to another
    if form:
        shape = pick([s for s in world.shapes if s != shown.shape], rng)
        other = Pattern(shape, pick(world.colors, rng))
        patterns.append(other)
        between = pick(tuple(RELATIONS), rng)
        relation = Relation(0, 1, between) if form == 2 else None
        joined = reword(RELATION_WORDS[between], rng) if relation else "and"
        words = f"{name} {joined} {a(noun(other.shape, other.color))}"
    ground = pick(world.backgrounds, rng) if form == 0 or rng.random() < WITH_BACKGROUND else None
    claim = Claim(tuple(patterns), relation, ground)
    text = reword(PREFIXES[:2], rng) + words + (f" on {a(ground)} background" if ground else "")
    return Reference(text, "subject", (source,), claim, scene_for(claim, world, rng))


def restyle(content: Scene, style: Scene) -> Scene:
    """The objects of `content` in the colours of `style`, both in reading order, on the background of `style`."""
    palette = [thing.color for thing in style.objects]
    painted = (replace(t, color=palette[i % len(palette)]) for i, t in enumerate(content.objects))
    return Scene(tuple(painted), style.background)


def style(world: World, rng: np.random.Generator) -> Reference:
    """Background and palette of the second picture, which shows one or two colours."""
    content, model = world.sample(rng), world.sample(rng, 1 + int(rng.integers(2)))
    target = restyle(content, model)
    claim = Claim(tuple(_exactly(thing, placed=True) for thing in target.objects), None, target.background)
    return Reference("", "style", (content, model), claim, target)


REFERENCES: dict[str, Callable[[World, np.random.Generator], Reference]] = {"subject": subject, "style": style}
