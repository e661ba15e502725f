"""The words of the synthetic world: claims, captions, questions, edits, splits."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dimoo_training import world as w
from dimoo_training.world.words import refer

FULL = w.WORLDS["full"]


# Claims


def things(*words):
    return tuple(w.Object(s, c, "large", cell) for s, c, cell in words)


def test_claims_need_every_object_and_no_more():
    scene = w.Scene(things(("circle", "red", (0, 0)), ("square", "blue", (1, 2))), "white")
    circle, square = w.Pattern("circle"), w.Pattern("square")
    assert w.Claim((circle, square)).holds(scene)
    assert w.Claim((square, circle), w.Relation(1, 0, "left of"), "white").holds(scene)
    assert not w.Claim((square, circle), w.Relation(0, 1, "left of")).holds(scene)
    assert not w.Claim((circle,)).holds(scene)
    assert not w.Claim((circle, square, w.Pattern())).holds(scene)
    assert not w.Claim((circle, square), background="black").holds(scene)
    assert not w.Claim((circle, w.Pattern("square", "red"))).holds(scene)
    assert not w.Claim((circle, square)).holds(None)


def test_relations_are_strict():
    scene = w.Scene(things(("circle", "red", (0, 1)), ("square", "blue", (2, 1))), "white")
    pair = w.Pattern("circle"), w.Pattern("square")
    holds = {name: w.Claim(pair, w.Relation(0, 1, name)).holds(scene) for name in w.RELATIONS}
    assert holds == {"left of": False, "right of": False, "above": True, "below": False}


def test_assignment_is_searched():
    scene = w.Scene(things(("circle", "red", (0, 0)), ("circle", "blue", (1, 2))), "white")
    assert w.Claim((w.Pattern("circle"), w.Pattern("circle", "red"))).holds(scene)
    assert w.Claim((w.Pattern("circle", "blue"), w.Pattern("circle"))).holds(scene)


def test_keys_ignore_order_and_wording():
    red, star = w.Pattern("circle", "red"), w.Pattern("star")
    one = w.Claim((red, star), w.Relation(0, 1, "left of"), "white")
    assert one.key() == w.Claim((star, red), w.Relation(0, 1, "right of"), "white").key()
    assert one.key() != w.Claim((star, red), w.Relation(0, 1, "left of"), "white").key()
    assert one.key() != replace(one, background=None).key()
    assert one.key(background=False) == replace(one, background="gray").key(background=False)


# Captions


@pytest.mark.parametrize("family", w.FAMILIES)
def test_captions_of_every_family(world, family, rng):
    captions = [w.sample_caption(world, family, rng) for _ in range(200)]
    for caption in captions:
        assert caption.family == family
        assert caption.text == caption.text.lower().strip()
        assert not caption.text.endswith(".")
        scene = w.scene_for(caption.claim, world, rng)
        assert caption.claim.holds(scene)
        assert caption.claim.background is None or f"{caption.claim.background} background" in caption.text
    plain = sum(not c.text.startswith(("draw", "a picture", "please", "there")) for c in captions)
    assert 0.5 < plain / 200 < 0.7


def test_caption_grammar(rng):
    texts = {w.sample_caption(FULL, f, rng).text for f in w.FAMILIES for _ in range(500)}
    words = [text.split() for text in texts]
    assert not any(a == "a" and b[0] in "aeiou" for t in words for a, b in pairwise(t))
    assert not any(a == "an" and b[0] not in "aeiou" for t in words for a, b in pairwise(t))
    assert any("crosses" in t for t in texts)
    assert not any("crosss" in t or "there is two" in t for t in texts)


@pytest.mark.parametrize("family", ["two", "counting", "colors", "position", "attributes"])
def test_captions_rarely_hold_by_chance(family, rng, scenes):
    captions = [w.sample_caption(FULL, family, rng) for _ in range(100)]
    others = scenes(FULL, rng, 100)
    assert np.mean([c.claim.holds(s) for c, s in zip(captions, others, strict=True)]) < 0.15


def test_describe_holds(world, rng, scenes):
    for scene in scenes(world, rng, 200):
        caption = w.describe(scene, rng)
        assert caption.claim.holds(scene)
        assert all(f"{thing.color} {thing.shape}" in caption.text for thing in scene.objects)
    with pytest.raises(ValueError, match="without objects"):
        w.describe(w.Scene((), "white"), rng)


def test_impossible_claim_is_an_error(rng):
    corner = w.Pattern("circle", cell=(0, 0))
    with pytest.raises(ValueError, match="no scene fits"):
        w.scene_for(w.Claim((corner, corner)), FULL, rng)


# Questions


@pytest.mark.parametrize("kind", w.QUESTION_KINDS)
def test_questions_of_every_kind(world, kind, rng, scenes):
    asked = [w.ask(scene, kind, rng, world) for scene in scenes(world, rng, 600)]
    questions = [question for question in asked if question]
    assert len(questions) > 300
    for question in questions:
        assert question.kind == kind
        assert question.choices.count(question.answer) == 1
        assert len(set(question.choices)) == len(question.choices)
    options = {len(question.choices) for question in questions}
    answers = Counter(question.answer for question in questions)
    if set(answers) == {"yes", "no"}:
        assert 0.42 < answers["yes"] / len(questions) < 0.58
        assert options == {2}
    else:
        assert options == {min(4, len(world.backgrounds) if kind == "background" else 4)}
        assert max(answers.values()) < 0.6 * len(questions)
    places = Counter(question.choices.index(question.answer) for question in questions)
    assert max(places.values()) < 1.3 * len(questions) / max(options)


def test_answers_are_true(rng):
    scene = w.Scene(
        things(("circle", "red", (0, 0)), ("square", "blue", (1, 2)), ("square", "green", (3, 1))), "gray"
    )
    truth = {
        "is there a red circle?": "yes",
        "is there a red square?": "no",
        "is there a blue circle?": "no",
        "what color is the circle?": "red",
        "what shape is the blue object?": "square",
        "what shape is in the bottom left?": "square",
        "what shape is in the top left?": "circle",
        "how many squares are there?": "two",
        "how many stars are there?": "zero",
        "how many objects are there?": "three",
        "where is the blue square?": "top right",
        "is the circle to the left of the green square?": "yes",
        "is the circle below the green square?": "no",
        "are there more squares than circles?": "yes",
        "are there more circles than squares?": "no",
        "what is the background?": "gray",
    }
    asked = {q.text: q.answer for q in (w.sample_question(scene, rng) for _ in range(6000))}
    assert {text: asked.get(text) for text in truth} == truth
    assert "what color is the square?" not in asked  # two squares


def test_no_question_about_nothing(rng):
    nothing = w.Scene((), "white")
    assert w.ask(nothing, "exists", rng) is None
    with pytest.raises(ValueError, match="no question"):
        w.sample_question(nothing, rng)


# Edits

cases = [(name, kind) for name in w.WORLDS for kind in w.EDIT_KINDS if (name, kind) != ("first", "resize")]


def edits(world, kind, rng, count=150):
    return [w.sample_edit(world, rng, (kind,)) for _ in range(count)]


@pytest.mark.parametrize(("name", "kind"), cases)
def test_targets_hold_and_sources_do_not(name, kind, rng):
    drawn = edits(w.WORLDS[name], kind, rng)
    targets = [edit.target for edit in drawn]
    assert [parsed.scene for parsed in w.parse_batch(w.render_batch(targets))] == targets
    for edit in drawn:
        assert edit.kind == kind
        assert edit.source != edit.target
        assert w.edit_holds(edit, edit.target) == (True, True)
        assert w.edit_holds(edit, edit.source) == (False, True)
        assert w.edit_holds(edit, None) == (False, False)


@pytest.mark.parametrize("kind", w.EDIT_KINDS)
def test_damage_elsewhere_is_seen(kind, rng):
    for edit in edits(FULL, kind, rng):
        untouched = sorted(set(edit.source.objects) & set(edit.target.objects), key=lambda t: t.cell)
        target = edit.target
        stranger = FULL.sample_object(target.free_cells()[0], rng)
        bystander = replace(target, objects=(*target.objects, stranger))
        assert w.edit_holds(edit, bystander) != (True, True)
        if untouched:
            lost = replace(target, objects=tuple(t for t in target.objects if t != untouched[0]))
            assert not w.edit_holds(edit, lost)[1]
            shade = "red" if untouched[0].color != "red" else "blue"
            stained = replace(lost, objects=(*lost.objects, replace(untouched[0], color=shade)))
            assert not w.edit_holds(edit, stained)[1]
        if kind != "background":
            other = "white" if target.background != "white" else "black"
            assert w.edit_holds(edit, replace(target, background=other)) == (True, False)


def test_a_replaced_object_is_not_a_removed_one():
    circle, star = things(("circle", "red", (0, 0)), ("star", "red", (1, 1)))
    source, target = w.Scene((circle, star), "white"), w.Scene((circle,), "white")
    edit = w.Edit("remove the star", "remove", source, target)
    assert w.edit_holds(edit, w.Scene((circle, replace(star, shape="heart")), "white")) == (False, True)


def test_any_place_that_fits_the_words_is_right():
    circle, star = things(("circle", "red", (0, 0)), ("star", "blue", (3, 3)))
    wish = w.Pattern("star", "blue", "large", place="bottom right")
    source = w.Scene((circle,), "white")
    edit = w.Edit(
        "add a blue star in the bottom right", "add", source, w.Scene((circle, star), "white"), wish
    )
    assert w.edit_holds(edit, w.Scene((circle, replace(star, cell=(2, 3))), "white")) == (True, True)
    assert w.edit_holds(edit, w.Scene((circle, replace(star, cell=(0, 3))), "white")) == (False, True)
    assert w.edit_holds(edit, w.Scene((replace(circle, cell=(1, 1)), star), "white")) == (True, False)


def test_names_are_never_ambiguous(rng, scenes):
    for scene in scenes(FULL, rng, 300):
        for thing in scene.objects:
            name = refer(scene, thing)
            if name:
                shape, *color = reversed(name.split())
                same = [t for t in scene.objects if t.shape == shape and (not color or t.color == color[0])]
                assert same == [thing]


# Splits


@pytest.mark.parametrize("family", [f for f in w.FAMILIES if f not in ("single", "counting")])
def test_caption_splits_share_no_fact_set(world, family, rng):
    def keys(draw):
        return {draw(world, family, rng).claim.key(background=False) for _ in range(150)}

    assert not keys(w.train_caption) & keys(w.test_caption)


def test_families_too_small_to_split_are_whole(rng):
    for family in ("single", "counting"):
        assert not any(w.caption_held_out(w.sample_caption(FULL, family, rng)) for _ in range(99))
        assert w.test_caption(FULL, family, rng).family == family


def test_scene_and_edit_splits_are_disjoint(world, rng):
    for n in (None, 1):
        train = {w.train_scene(world, rng, n).key() for _ in range(200)}
        assert not train & {w.test_scene(world, rng, n).key() for _ in range(100)}
    assert not any(w.held_out(w.train_edit(world, rng).source.key()) for _ in range(50))
    assert all(w.held_out(w.test_edit(world, rng, ("add", "swap")).source.key()) for _ in range(20))


def test_share_of_held_out_scenes(rng, scenes):
    share = np.mean([w.held_out(scene.key()) for scene in scenes(FULL, rng)])
    assert 0.11 < share < 0.19


def test_held_out_is_the_same_everywhere():
    assert [i for i in range(20) if w.held_out(f"fact {i}")] == [7, 17]


# Determinism


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: w.sample_caption(FULL, "full", rng),
        lambda rng: w.scene_for(w.sample_caption(FULL, "position", rng).claim, FULL, rng),
        lambda rng: w.sample_question(FULL.sample(rng), rng),
        lambda rng: w.sample_edit(FULL, rng),
        lambda rng: w.train_edit(FULL, rng),
    ],
)
def test_same_seed_same_draws(draw):
    one, two = ([draw(generator) for _ in range(20)] for generator in map(np.random.default_rng, (7, 7)))
    assert one == two
