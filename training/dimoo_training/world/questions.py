"""Questions about a scene with short answers and four choices. Half of the yes/no questions are no."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from .captions import RELATION_WORDS
from .facts import RELATIONS
from .scene import Object, Scene, World, pick, require, smallest_world
from .words import NUMBERS, PLACES, a, noun, place_of, plural, referable, reword

CHOICES = 4
LETTERS = "abcd"
YES_NO = ("yes", "no")


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its answer and the choices (shuffled, with the answer): two for yes/no, else up to four."""

    text: str
    answer: str
    kind: str
    choices: tuple[str, ...]

    def as_choice(self) -> tuple[str, str]:
        """The question with lettered options, and the letter of the answer: "... a) red b) blue"."""
        options = " ".join(f"{letter}) {choice}" for letter, choice in zip(LETTERS, self.choices, strict=False))
        return f"{self.text} {options}", LETTERS[self.choices.index(self.answer)]


Draft = tuple[str, str, Sequence[str]]  # text, answer, possible answers
Kind = Callable[[Scene, World, np.random.Generator], Draft | None]


def _coin(rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.5)


def exists(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "is there a red circle?"; negatives are one attribute away from something that is there."""
    truth, thing = _coin(rng), pick(scene.objects, rng)
    said = pick(EXISTS_FORMS, rng)
    shown = {(said(t.shape, t.color)) for t in scene.objects}
    name = said(thing.shape, thing.color) if truth else _near_miss(thing, said, shown, world, rng)
    if name is None:
        return None
    wordings = (f"is there {a(name)}?", f"is there {a(name)} in the picture?", f"do you see {a(name)}?")
    return reword(wordings, rng), "yes" if truth else "no", YES_NO


# Colour and shape twice: the form that needs binding is the most asked.
EXISTS_FORMS: tuple[Callable[[str, str], str], ...] = (
    lambda shape, color: noun(shape, color),
    lambda shape, color: noun(shape, color),
    lambda shape, color: noun(shape),
    lambda shape, color: noun(None, color),
)


def _near_miss(
    thing: Object,
    said: Callable[[str, str], str],
    shown: set[str],
    world: World,
    rng: np.random.Generator,
) -> str | None:
    """A name that nothing in the scene has, one attribute away from `thing`."""
    recolored = [said(thing.shape, color) for color in world.colors]
    reshaped = [said(shape, thing.color) for shape in world.shapes]
    pools = [[n for n in names if n not in shown] for names in (recolored, reshaped)]
    pools = [names for names in pools if names]
    return pick(pick(pools, rng), rng) if pools else None


def color(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "what color is the circle?"."""
    unique = _once(scene.objects, lambda thing: thing.shape)
    if not unique:
        return None
    thing = pick(unique, rng)
    wordings = (
        f"what color is the {thing.shape}?",
        f"what colour is the {thing.shape}?",
        f"which color does the {thing.shape} have?",
    )
    return reword(wordings, rng), thing.color, world.colors


def shape(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "what shape is the red object?" or "what shape is in the top left?"."""
    unique = [
        (thing, (f"what shape is the {thing.color} object?", f"which shape is {thing.color}?"))
        for thing in _once(scene.objects, lambda thing: thing.color)
    ] + [
        (thing, (f"what shape is in the {place}?", f"which shape is in the {place} corner?"))
        for thing in _once(scene.objects, lambda thing: place_of(thing.cell))
        for place in (place_of(thing.cell),)
    ]
    if not unique:
        return None
    thing, wordings = pick(unique, rng)
    return reword(wordings, rng), thing.shape, world.shapes


def _once(things: Iterable[Object], trait: Callable[[Object], str]) -> list[Object]:
    """The objects that share `trait` with no other."""
    counts = Counter(trait(thing) for thing in things)
    return [thing for thing in things if counts[trait(thing)] == 1]


def count(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "how many circles are there?", also of a colour and of all; a quarter asks for what is absent."""
    name, number = COUNT_FORMS[pick(tuple(COUNT_FORMS), rng)](scene, world, rng)
    if number >= len(NUMBERS):
        return None
    wordings = (f"how many {name} are there?", f"how many {name} do you see?", f"count the {name}")
    return reword(wordings, rng), NUMBERS[number], NUMBERS


def _present(values: Sequence[str], shown: Sequence[str], rng: np.random.Generator) -> str:
    """A shown value three times in four, else one that is not shown."""
    absent = [value for value in values if value not in shown]
    return pick(absent, rng) if absent and rng.random() < 0.25 else pick(shown, rng)


def _count_shape(scene: Scene, world: World, rng: np.random.Generator) -> tuple[str, int]:
    shown = [thing.shape for thing in scene.objects]
    name = _present(world.shapes, shown, rng)
    return plural(name), shown.count(name)


def _count_color(scene: Scene, world: World, rng: np.random.Generator) -> tuple[str, int]:
    shown = [thing.color for thing in scene.objects]
    name = _present(world.colors, shown, rng)
    return f"{name} objects", shown.count(name)


def _count_all(scene: Scene, world: World, rng: np.random.Generator) -> tuple[str, int]:
    return "objects", len(scene.objects)


COUNT_FORMS = {"shape": _count_shape, "color": _count_color, "all": _count_all}


def where(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "where is the star?" answered by a quadrant."""
    named = referable(scene)
    if not named:
        return None
    thing, name = pick(named, rng)
    wordings = (f"where is the {name}?", f"in which corner is the {name}?", f"where do you see the {name}?")
    return reword(wordings, rng), place_of(thing.cell), tuple(PLACES)


def relation(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "is the circle to the left of the square?"."""
    pairs = list(permutations(referable(scene), 2))
    truth = _coin(rng)
    fitting = [
        (first, second, name)
        for ((one, first), (two, second)), name in product(pairs, RELATIONS)
        if RELATIONS[name](one, two) is truth
    ]
    if not fitting:
        return None
    first, second, name = pick(fitting, rng)
    text = f"is the {first} {reword(RELATION_WORDS[name], rng)} the {second}?"
    return text, "yes" if truth else "no", YES_NO


def compare(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "are there more circles than squares?"; at least one of the two is there."""
    shown = Counter(thing.shape for thing in scene.objects)
    truth = _coin(rng)
    fitting = [
        (more, less)
        for more, less in permutations(world.shapes, 2)
        if shown[more] + shown[less] and (shown[more] > shown[less]) is truth
    ]
    if not fitting:
        return None
    more, less = pick(fitting, rng)
    return f"are there more {plural(more)} than {plural(less)}?", "yes" if truth else "no", YES_NO


def background(scene: Scene, world: World, rng: np.random.Generator) -> Draft | None:
    """ "what is the background?"."""
    wordings = ("what is the background?", "what does the background look like?", "which background is it?")
    return reword(wordings, rng), scene.background, world.backgrounds


KINDS: dict[str, Kind] = {
    kind.__name__: kind for kind in (exists, color, shape, count, where, relation, compare, background)
}


def ask(scene: Scene, kind: str, rng: np.random.Generator, world: World | None = None) -> Question | None:
    """A question of one kind of KINDS, or None where the kind does not apply to the scene.

    `world` gives the values of wrong choices and near misses; None: the smallest world covering the scene.
    """
    require("kind of question", kind, tuple(KINDS))
    draft = KINDS[kind](scene, world or smallest_world(scene), rng) if scene.objects else None
    if draft is None:
        return None
    text, answer, possible = draft
    return Question(text, answer, kind, _choices(answer, possible, rng))


def _choices(answer: str, possible: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
    wrong = [value for value in possible if value != answer]
    options = [wrong[i] for i in rng.permutation(len(wrong))[: CHOICES - 1]] + [answer]
    return tuple(options[i] for i in rng.permutation(len(options)))


def sample_question(scene: Scene, rng: np.random.Generator, world: World | None = None) -> Question:
    """A question of a random kind that applies. ValueError for a scene without objects."""
    for i in rng.permutation(len(KINDS)):
        question = ask(scene, tuple(KINDS)[i], rng, world)
        if question is not None:
            return question
    raise ValueError(f"no question applies to the scene {scene.key()!r}")
