"""Questions about what a prompt claims: true of every picture that fits it, and not to be guessed from the letters."""

import re
from collections import Counter

import numpy as np
import pytest

from dimoo_training import world as w
from dimoo_training.rl.questions import ROLES, choices, questions
from dimoo_training.world.questions import LETTERS
from dimoo_training.world.words import NUMBERS, a, noun, place_of, plural

WORLD = w.WORLDS["full"]
FAMILIES = ("single", "two", "counting", "colors", "position", "attributes", "full")


def truth(text: str, scene: w.Scene) -> str:
    """The answer to a question, read from the scene."""
    things = scene.objects
    if match := re.fullmatch(r"is there (an? .*)\?", text):
        names = {a(noun(t.shape, t.color)) for t in things} | {a(t.shape) for t in things}
        return "yes" if match[1] in names else "no"
    if match := re.fullmatch(r"how many (.*) are there\?", text):
        return NUMBERS[sum(match[1] in ("objects", plural(t.shape)) for t in things)]
    if match := re.fullmatch(r"what color is the (.*)\?", text):
        return next(t.color for t in things if t.shape == match[1])
    if match := re.fullmatch(r"what shape is the (.*) object\?", text):
        return next(t.shape for t in things if t.color == match[1])
    if match := re.fullmatch(r"where is the (.*)\?", text):
        return next(place_of(t.cell) for t in things if t.shape == match[1])
    if match := re.fullmatch(r"is the (\w+) (to the left of|to the right of|above|below) the (\w+)\?", text):
        one, other = (next(t for t in things if t.shape == match[k]) for k in (1, 3))
        return "yes" if w.RELATIONS[match[2].removeprefix("to the ")](one, other) else "no"
    assert text == "what is the background?", text
    return scene.background


@pytest.mark.parametrize("family", FAMILIES)
def test_the_right_answer_is_true_of_every_scene_that_fits(family, rng):
    for _ in range(25):
        claim = w.sample_caption(WORLD, family, rng).claim
        asked = questions(claim, WORLD, 8, rng)
        for scene in (w.scene_for(claim, WORLD, rng) for _ in range(4)):
            assert {q.text: truth(q.text, scene) for q in asked} == {q.text: q.answer for q in asked}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_set_asks_for_facts_numbers_and_what_is_absent(family, rng):
    roles = {kind.__name__: role for role, kinds in ROLES.items() for kind in kinds}
    for _ in range(25):
        asked = questions(w.sample_caption(WORLD, family, rng).claim, WORLD, 4, rng)
        assert len(asked) == 4 == len({q.text for q in asked})
        assert {roles[q.kind] for q in asked} == set(ROLES)


def test_options_hold_the_answer_once_and_no_letter_is_favoured(rng):
    letters = Counter()
    for _ in range(200):
        for q in questions(w.sample_caption(WORLD, "attributes", rng).claim, WORLD, 4, rng):
            assert q.choices.count(q.answer) == 1 and len(set(q.choices)) == len(q.choices) in (2, 4)
            if len(q.choices) == 4:
                letters[q.as_choice()[1]] += 1
    assert set(letters) == set(LETTERS)
    assert max(letters.values()) < 1.4 * min(letters.values())


def test_options_are_distractors_of_the_same_kind(rng):
    options = choices("red", WORLD.colors, 2, rng)
    assert options[2] == "red" and set(options) <= set(WORLD.colors)
    assert choices("yes", ("yes", "no"), 3, rng) == ("no", "yes")


def test_what_can_be_answered_without_the_picture_is_left_out(rng):
    claim = w.sample_caption(WORLD, "colors", rng).claim
    asked = questions(claim, WORLD, 8, rng, known=lambda text: text.startswith("how many"))
    assert asked and not any(q.text.startswith("how many") for q in asked)


def test_the_same_rng_gives_the_same_questions():
    claim = w.sample_caption(WORLD, "position", np.random.default_rng(1)).claim
    one, two = (questions(claim, WORLD, 4, np.random.default_rng(3)) for _ in range(2))
    assert one == two
