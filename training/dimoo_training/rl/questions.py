"""Questions that a drawing is checked with: derived from what its prompt claims, never from a picture.

Every claim of the world is exact ("a star" is one star and nothing else), so beside what must be there a prompt also
says what must not: absent objects and exact counts stop a model from drawing more than was asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dimoo_training import world as w
from dimoo_training.world.captions import RELATION_WORDS
from dimoo_training.world.questions import CHOICES, YES_NO
from dimoo_training.world.scene import pick
from dimoo_training.world.words import NUMBERS, a, noun, plural

Draft = tuple[str, str, Sequence[str]]
"""Text, right answer, possible answers."""


def named(claim: w.Claim) -> list[tuple[w.Pattern, str]]:
    """The patterns that a shape names without doubt, with that name."""
    shapes = Counter(pattern.shape for pattern in claim.patterns)
    return [(p, p.shape) for p in claim.patterns if p.shape is not None and shapes[p.shape] == 1]


def color(claim: w.Claim, world: w.World, rng: np.random.Generator) -> Iterator[Draft]:
    """Of each thing whose colour was asked for."""
    for pattern, name in named(claim):
        if pattern.color:
            yield f"what color is the {name}?", pattern.color, world.colors


def shape(claim: w.Claim, world: w.World, rng: np.random.Generator) -> Iterator[Draft]:
    """Of each colour that was asked for once, when everything has a colour."""
    colors = Counter(pattern.color for pattern in claim.patterns)
    if None not in colors:
        for pattern in claim.patterns:
            if pattern.shape and colors[pattern.color] == 1:
                yield f"what shape is the {pattern.color} object?", pattern.shape, world.shapes


def present(claim: w.Claim, world: w.World, rng: np.random.Generator) -> Iterator[Draft]:
    """Is each thing there?"""
    for pattern in dict.fromkeys(claim.patterns):
        yield f"is there {a(noun(pattern.shape, pattern.color))}?", "yes", YES_NO


def where(claim: w.Claim, world: w.World, rng: np.random.Generator) -> Iterator[Draft]:
    """Of each thing whose place was asked for."""
    for pattern, name in named(claim):
        if pattern.place:
            yield f"where is the {name}?", pattern.place, tuple(w.PLACES)


def absent(claim: w.Claim, world: w.World, rng: np.random.Generator) -> Iterator[Draft]:
    """Something that was not asked for, one attribute away where that can be said."""
    shapes = {pattern.shape for pattern in claim.patterns}
    others = [name for name in world.shapes if name not in shapes]
    if None not in shapes and others:
        yield f"is there {a(pick(others, rng))}?", "no", YES_NO
    for pattern, name in named(claim):
        if pattern.color:
            wrong = pick([c for c in world.colors if c != pattern.color], rng)
            yield f"is there {a(noun(name, wrong))}?", "no", YES_NO


def count(claim: w.Claim, world: w.World, rng: np.random.Generator) -> Iterator[Draft]:
    """How many of each shape that was named, and of one that was not."""
    shapes = Counter(pattern.shape for pattern in claim.patterns)
    if None in shapes:
        return
    for name, number in shapes.items():
        yield f"how many {plural(name)} are there?", NUMBERS[number], NUMBERS
    if others := [name for name in world.shapes if name not in shapes]:
        yield f"how many {plural(pick(others, rng))} are there?", NUMBERS[0], NUMBERS


def total(claim: w.Claim, world: w.World, rng: np.random.Generator) -> Iterator[Draft]:
    """How many things in all."""
    yield "how many objects are there?", NUMBERS[len(claim.patterns)], NUMBERS


def relation(claim: w.Claim, world: w.World, rng: np.random.Generator) -> Iterator[Draft]:
    """The relation that was asked for, or its opposite."""
    if claim.relation is None:
        return
    names = dict(named(claim))
    ends = [names.get(claim.patterns[i]) for i in (claim.relation.first, claim.relation.second)]
    if all(ends):
        said = RELATION_WORDS[claim.relation.name][0]
        first, second = ends
        yield f"is the {first} {said} the {second}?", "yes", YES_NO
        yield f"is the {second} {said} the {first}?", "no", YES_NO


def background(claim: w.Claim, world: w.World, rng: np.random.Generator) -> Iterator[Draft]:
    """When it was asked for."""
    if claim.background:
        yield "what is the background?", claim.background, world.backgrounds


Ask = Callable[[w.Claim, w.World, np.random.Generator], Iterator[Draft]]

ROLES: dict[str, tuple[Ask, ...]] = {
    "fact": (color, shape, present, where, relation, background), "number": (count, total), "absent": (absent,),
}  # fmt: skip
"""What a set of questions is put together from: what is there, how many, what is not there."""
TURNS = ("fact", "number", "absent", "fact")
"""Roles in the order in which places are given; a fifth question starts again from the first."""


def questions(
    claim: w.Claim, world: w.World, count: int, rng: np.random.Generator, known: Callable[[str], bool] | None = None
) -> list[w.Question]:
    """`count` different questions about a claim (fewer when it has fewer), options shuffled.

    The right option goes through the letters in turn from a random one, so that no letter is right more often.
    `known` says of a text whether it should be left out, because it can be answered without the picture.
    """
    pools = {role: _drafts(kinds, claim, world, rng, known) for role, kinds in ROLES.items()}
    made: list[w.Question] = []
    start = int(rng.integers(CHOICES))
    for turn in range(2 * len(TURNS) * count):
        role = TURNS[turn % len(TURNS)]
        if len(made) == count or not any(pools.values()):
            break
        if pools[role]:
            kind, (text, answer, possible) = pools[role].pop()
            options = choices(answer, possible, start + len(made), rng)
            made.append(w.Question(text, answer, kind, options))
    return made


def _drafts(kinds, claim, world, rng, known) -> list[tuple[str, Draft]]:
    """Drafts of one role in random order, kinds in turn."""
    columns = []
    for kind in kinds:
        drafts = [(kind.__name__, draft) for draft in kind(claim, world, rng) if not (known and known(draft[0]))]
        columns.append([drafts[i] for i in rng.permutation(len(drafts))])
    order = rng.permutation(len(columns))
    ranked = [(rank, place, draft) for place, column in zip(order, columns, strict=True)
              for rank, draft in enumerate(column)]  # fmt: skip
    return [draft for _, _, draft in sorted(ranked, key=lambda item: item[:2], reverse=True)]


def choices(answer: str, possible: Sequence[str], place: int, rng: np.random.Generator) -> tuple[str, ...]:
    """Up to four options, the answer at `place` modulo their number; distractors are other values of the same kind."""
    wrong = [value for value in possible if value != answer]
    options = [wrong[i] for i in rng.permutation(len(wrong))[: CHOICES - 1]]
    options.insert(place % (len(options) + 1), answer)
    return tuple(options)
