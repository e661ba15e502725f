"""Edit instructions: a scene, what to change in words, and the scene after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .facts import Pattern
from .scene import CELLS, Object, Scene, World, pick, require
from .words import PLACES, a, noun, place_of, referable, reword

WITH_PLACE = 0.6  # share of additions that say where


@dataclass(frozen=True, slots=True)
class Edit:
    """An instruction with its source and one right target.

    `wish` is set where several targets are right (add, move): what the new or moved object must be.
    """

    text: str
    kind: str
    source: Scene
    target: Scene
    wish: Pattern | None = None


Draft = tuple[Sequence[str], Scene, Pattern | None]  # wordings, target, wish
Kind = Callable[[Scene, World, np.random.Generator], Draft | None]


def _exchange(scene: Scene, old: tuple[Object, ...], new: tuple[Object, ...]) -> Scene:
    kept = tuple(thing for thing in scene.objects if thing not in old)
    return Scene(kept + new, scene.background)


def _named(scene: Scene, rng: np.random.Generator) -> tuple[Object, str] | None:
    named = referable(scene)
    return pick(named, rng) if named else None


def _change(attribute: str, values: str, wordings: tuple[str, ...]) -> Kind:
    """An edit of one attribute of one object; wordings have {name} and {value}."""

    def draft(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
        chosen = _named(scene, rng)
        others = [v for v in getattr(world, values) if chosen and v != getattr(chosen[0], attribute)]
        if not chosen or not others:
            return None
        (thing, name), value = chosen, pick(others, rng)
        target = _exchange(scene, (thing,), (replace(thing, **{attribute: value}),))
        return [words.format(name=name, value=value, a_value=a(value)) for words in wordings], target, None

    return draft


def remove(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "remove the star"; never the last object."""
    chosen = _named(scene, rng)
    if not chosen or len(scene.objects) < 2:
        return None
    thing, name = chosen
    wordings = [f"{verb} the {name}" for verb in ("remove", "delete", "erase")]
    return wordings, _exchange(scene, (thing,), ()), None


def add(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "add a blue square in the top left", or without a place."""
    if len(scene.objects) >= world.max_objects:
        return None
    thing = world.sample_object(pick(scene.free_cells(), rng), rng)
    place = place_of(thing.cell) if rng.random() < WITH_PLACE else None
    name = a(noun(thing.shape, thing.color, thing.size if len(world.sizes) > 1 else None))
    where = f" in the {place}" if place else ""
    wordings = [f"{verb} {name}{where}" for verb in ("add", "put", "draw")]
    wish = Pattern(thing.shape, thing.color, thing.size, place=place)
    return wordings, _exchange(scene, (), (thing,)), wish


def move(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "move the star to the bottom right"."""
    chosen = _named(scene, rng)
    if not chosen:
        return None
    thing, name = chosen
    place = pick([other for other in PLACES if other != place_of(thing.cell)], rng)
    cell = pick([cell for cell in scene.free_cells() if place_of(cell) == place] or [thing.cell], rng)
    if cell == thing.cell:  # a full quadrant
        return None
    wordings = [f"{verb} the {name} to the {place}" for verb in ("move", "bring", "shift")]
    target = _exchange(scene, (thing,), (replace(thing, cell=cell),))
    return wordings, target, Pattern(*thing.looks, place=place)


def background(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "change the background to black"."""
    value = pick([name for name in world.backgrounds if name != scene.background], rng)
    wordings = [
        f"change the background to {value}",
        f"make the background {value}",
        f"use {a(value)} background",
    ]
    return wordings, replace(scene, background=value), None


def swap(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "swap the circle and the star": they change places."""
    named = referable(scene)
    if len(named) < 2:
        return None
    (one, first), (two, second) = (named[i] for i in rng.permutation(len(named))[:2])
    wordings = [
        f"swap the {first} and the {second}",
        f"swap the {first} with the {second}",
        f"exchange the {first} and the {second}",
    ]
    moved = replace(one, cell=two.cell), replace(two, cell=one.cell)
    return wordings, _exchange(scene, (one, two), moved), None


KINDS: dict[str, Kind] = {
    "recolor": _change(
        "color",
        "colors",
        ("make the {name} {value}", "color the {name} {value}", "change the {name} to {value}"),
    ),
    "reshape": _change(
        "shape",
        "shapes",
        (
            "turn the {name} into {a_value}",
            "change the {name} into {a_value}",
            "replace the {name} with {a_value}",
        ),
    ),
    "resize": _change("size", "sizes", ("make the {name} {value}", "change the {name} to {value}")),
    "remove": remove,
    "add": add,
    "move": move,
    "background": background,
    "swap": swap,
}


def edit_scene(scene: Scene, kind: str, world: World, rng: np.random.Generator) -> Edit | None:
    """An edit of `scene` of one kind of KINDS, or None where the kind does not apply."""
    require("kind of edit", kind, tuple(KINDS))
    draft = KINDS[kind](scene, world, rng)
    if draft is None:
        return None
    wordings, target, wish = draft
    return Edit(reword(wordings, rng), kind, scene, target, wish)


def sample_edit(world: World, rng: np.random.Generator, kinds: Sequence[str] = tuple(KINDS)) -> Edit:
    """A random edit of a random scene; kinds are drawn uniformly. ValueError if none ever applies."""
    for _ in range(100):
        kind = pick(kinds, rng)
        for _ in range(20):  # scenes for this kind, so that rare kinds keep their share
            edit = edit_scene(world.sample(rng), kind, world, rng)
            if edit is not None:
                return edit
    raise ValueError(f"no edit of the kinds {', '.join(kinds)} applies to scenes of this world")


ATTRIBUTE = {"recolor": "color", "reshape": "shape", "resize": "size"}


def edit_holds(edit: Edit, scene: Scene | None) -> tuple[bool, bool]:
    """Whether the asked change is in `scene`, and whether everything else stayed as it was.

    (False, False) for None, an unreadable picture.
    """
    if scene is None:
        return False, False
    return HOLDS[edit.kind](edit, scene)


def _holds_background(edit: Edit, scene: Scene) -> tuple[bool, bool]:
    return scene.background == edit.target.background, scene.objects == edit.source.objects


def _holds_attribute(edit: Edit, scene: Scene) -> tuple[bool, bool]:
    """One attribute of one object: with it set back to the source, the scene must be the source."""
    attribute = ATTRIBUTE[edit.kind]
    (old,) = set(edit.source.objects) - set(edit.target.objects)
    found, wanted = scene.at(old.cell), edit.target.at(old.cell)
    if found is None:
        return False, False
    restored = replace(found, **{attribute: getattr(old, attribute)})
    preserved = _exchange(scene, (found,), (restored,)) == edit.source
    return getattr(found, attribute) == getattr(wanted, attribute), preserved


def _holds_cells(edit: Edit, scene: Scene) -> tuple[bool, bool]:
    """One right target: the cells that change are as in it, the others as in the source."""
    changed = {thing.cell for thing in set(edit.source.objects) ^ set(edit.target.objects)}
    fact = all(scene.at(cell) == edit.target.at(cell) for cell in changed)
    rest = all(scene.at(cell) == edit.source.at(cell) for cell in CELLS if cell not in changed)
    return fact, rest and scene.background == edit.source.background


def _holds_wish(edit: Edit, scene: Scene) -> tuple[bool, bool]:
    """An added or moved object: the others stay, and at most one more is there, wherever it is."""
    source, target, found = (set(s.objects) for s in (edit.source, edit.target, scene))
    gone, kept = source - target, source & target
    fact = any(edit.wish.matches(thing) for thing in found - source) and not gone & found
    alone = len(found - kept) <= 1
    return fact, kept <= found and alone and scene.background == edit.source.background


HOLDS: dict[str, Callable[[Edit, Scene], tuple[bool, bool]]] = {
    "background": _holds_background,
    "remove": _holds_cells,
    "swap": _holds_cells,
    "add": _holds_wish,
    "move": _holds_wish,
    **dict.fromkeys(ATTRIBUTE, _holds_attribute),
}
