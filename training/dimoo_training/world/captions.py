"""Captions in GenEval's six families and in full, each with the claim it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .facts import RELATIONS, Claim, Pattern, Relation
from .scene import CELLS, Cell, Object, Scene, World, pick, require
from .words import NUMBERS, a, noun, place_of, plural, reword

WITH_BACKGROUND = 0.2  # share of captions of every family but full that name the background
WITH_COLORS = 0.5  # share of position captions that name colours
WITH_PLACE = 0.5  # share of full captions that say where things are

PREFIXES = ("", "draw ", "a picture of ", "please draw ")

# The first wording is the plain one.
RELATION_WORDS: dict[str, tuple[str, ...]] = {
    "left of": ("to the left of", "left of"),
    "right of": ("to the right of", "right of"),
    "above": ("above",),
    "below": ("below", "under"),
}


@dataclass(frozen=True, slots=True)
class Caption:
    """A text, its family and the facts it claims."""

    text: str
    family: str
    claim: Claim


Draft = tuple[str, tuple[Pattern, ...], Relation | None]  # text, patterns, relation


def _two(world: World, rng: np.random.Generator) -> tuple[str, str]:
    return _distinct(world.shapes, rng)


def _distinct(values: tuple[str, ...], rng: np.random.Generator) -> tuple[str, str]:
    first, second = rng.permutation(len(values))[:2]
    return values[first], values[second]


def say(pattern: Pattern) -> str:
    """ "a small red circle in the top left"."""
    words = a(noun(pattern.shape, pattern.color, pattern.size))
    return f"{words} in the {pattern.place}" if pattern.place else words


def _list(patterns: tuple[Pattern, ...]) -> str:
    """ "a star", "a star and a heart", "a star, a heart and a circle"."""
    words = [say(pattern) for pattern in patterns]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _listed(*patterns: Pattern) -> Draft:
    return _list(patterns), patterns, None


def single(world: World, rng: np.random.Generator) -> Draft:
    """ "a star"."""
    return _listed(Pattern(pick(world.shapes, rng)))


def two(world: World, rng: np.random.Generator) -> Draft:
    """ "a square and a heart"."""
    return _listed(*(Pattern(shape) for shape in _two(world, rng)))


def counting(world: World, rng: np.random.Generator) -> Draft:
    """ "three stars"."""
    shape, count = pick(world.shapes, rng), 1 + int(rng.integers(world.max_objects))
    text = f"{NUMBERS[count]} {shape if count == 1 else plural(shape)}"
    return text, (Pattern(shape),) * count, None


def colors(world: World, rng: np.random.Generator) -> Draft:
    """ "a red circle"."""
    return _listed(Pattern(pick(world.shapes, rng), pick(world.colors, rng)))


def position(world: World, rng: np.random.Generator) -> Draft:
    """ "a circle above a star", half of the time with colours."""
    shapes, name = _two(world, rng), pick(tuple(RELATIONS), rng)
    colored = rng.random() < WITH_COLORS
    patterns = tuple(Pattern(shape, pick(world.colors, rng) if colored else None) for shape in shapes)
    text = f"{say(patterns[0])} {reword(RELATION_WORDS[name], rng)} {say(patterns[1])}"
    return text, patterns, Relation(0, 1, name)


def attributes(world: World, rng: np.random.Generator) -> Draft:
    """ "a red circle and a blue square"."""
    pairs = zip(_two(world, rng), _distinct(world.colors, rng), strict=True)
    return _listed(*(Pattern(shape, color) for shape, color in pairs))


def full(world: World, rng: np.random.Generator) -> Caption:
    """Everything but the exact cells."""
    return describe(world.sample(rng), rng, sized=len(world.sizes) > 1)


def _family(draft: Callable[[World, np.random.Generator], Draft]) -> Callable[..., Caption]:
    def caption(world: World, rng: np.random.Generator) -> Caption:
        text, patterns, relation = draft(world, rng)
        background = pick(world.backgrounds, rng) if rng.random() < WITH_BACKGROUND else None
        claim = Claim(patterns, relation, background)
        return Caption(_wrap(text, claim, rng), draft.__name__, claim)

    caption.__doc__ = draft.__doc__
    return caption


def _wrap(text: str, claim: Claim, rng: np.random.Generator) -> str:
    """Prefix and background around the plain text."""
    several = text.split()[0] in NUMBERS[2:]
    prefix = reword((*PREFIXES, "there are " if several else "there is "), rng)
    suffix = f" on {a(claim.background)} background" if claim.background else ""
    return prefix + text + suffix


GENEVAL = (single, two, counting, colors, position, attributes)

FAMILIES: dict[str, Callable[[World, np.random.Generator], Caption]] = {
    **{draft.__name__: _family(draft) for draft in GENEVAL},
    "full": full,
}


def sample_caption(world: World, family: str, rng: np.random.Generator) -> Caption:
    """A random caption of one family of FAMILIES."""
    require("family", family, tuple(FAMILIES))
    return FAMILIES[family](world, rng)


def describe(scene: Scene, rng: np.random.Generator, sized: bool | None = None) -> Caption:
    """A full caption of a scene with objects: colours, shapes, background; sizes if `sized`; places at times.

    `sized=None` names sizes when some object is small. ValueError for a scene without objects.
    """
    order = rng.permutation(len(scene.objects))
    text, claim = _full(scene, order, sized, placed=rng.random() < WITH_PLACE)
    return Caption(_wrap(text, claim, rng), "full", claim)


def report(scene: Scene) -> Caption:
    """The one caption a reader of the picture gives: objects in reading order, places, background, no prefix."""
    text, claim = _full(scene, range(len(scene.objects)), None, placed=True)
    return Caption(f"{text} on {a(claim.background)} background", "full", claim)


def _full(scene: Scene, order: Sequence[int], sized: bool | None, placed: bool) -> tuple[str, Claim]:
    if not scene.objects:
        raise ValueError("a scene without objects has no caption, expected 1..4 objects")
    sized = any(thing.size == "small" for thing in scene.objects) if sized is None else sized
    patterns = tuple(_pattern(scene.objects[i], sized, placed) for i in order)
    return _list(patterns), Claim(patterns, None, scene.background)


def _pattern(thing: Object, sized: bool, placed: bool) -> Pattern:
    return Pattern(
        thing.shape,
        thing.color,
        thing.size if sized else None,
        place=place_of(thing.cell) if placed else None,
    )


def scene_for(claim: Claim, world: World, rng: np.random.Generator) -> Scene:
    """A random scene of which the claim holds; what it leaves open is free.

    ValueError if no scene of `world` was found to fit.
    """
    for _ in range(100):  # a relation holds in four placements of ten
        things = _place(claim.patterns, world, rng)
        if len(things) == len(claim.patterns) and (claim.relation is None or claim.relation.holds(things)):
            return Scene(things, claim.background or pick(world.backgrounds, rng))
    raise ValueError(f"no scene fits the claim {claim.key()!r}")


def _place(patterns: tuple[Pattern, ...], world: World, rng: np.random.Generator) -> tuple[Object, ...]:
    """One object a pattern on free cells, fewer where a place runs full."""
    things: list[Object] = []
    free = set(CELLS)
    for pattern in patterns:
        cells = [cell for cell in CELLS if cell in free and _allows(pattern, cell)]
        if not cells:
            break
        cell = pick(cells, rng)
        free.remove(cell)
        things.append(
            Object(
                pattern.shape or pick(world.shapes, rng),
                pattern.color or pick(world.colors, rng),
                pattern.size or pick(world.sizes, rng),
                cell,
            )
        )
    return tuple(things)


def _allows(pattern: Pattern, cell: Cell) -> bool:
    return pattern.cell in (None, cell) and pattern.place in (None, place_of(cell))
