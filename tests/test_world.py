"""The synthetic world: pictures, oracle, claims, captions, questions, edits, splits."""

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from PIL import Image, ImageFilter

from dimoo_training import world as w
from dimoo_training.world.render import TEXTURE, alpha, backdrop, sprite
from dimoo_training.world.scene import BACKGROUNDS, COLORS, SHAPES, SIZES
from dimoo_training.world.words import refer

FULL, FIRST = w.WORLDS["full"], w.WORLDS["first"]
worlds = pytest.mark.parametrize("world", w.WORLDS.values(), ids=w.WORLDS)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def scenes(world, rng, count=1000):
    return [world.sample(rng) for _ in range(count)]


def blurred(pictures, radius):
    filtered = (Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius)) for picture in pictures)
    return np.stack([np.asarray(picture) for picture in filtered])


def noisy(pictures, sigma, rng):
    return np.clip(pictures + rng.normal(0, sigma, pictures.shape), 0, 255).round().astype(np.uint8)


# Scenes


@worlds
def test_sample_stays_in_the_world(world, rng):
    for scene in scenes(world, rng, 200):
        assert 1 <= len(scene.objects) <= world.max_objects
        assert scene.background in world.backgrounds
        assert [t.cell for t in scene.objects] == sorted({t.cell for t in scene.objects})
        assert w.Scene.from_dict(scene.to_dict()) == scene


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_sample_draws_as_many_as_asked(n, rng):
    assert len(FULL.sample(rng, n).objects) == n


def test_bad_values_are_named_with_the_allowed_ones(rng):
    with pytest.raises(ValueError, match=r"'blob'.*circle"):
        w.Object("blob", "red", "large", (0, 0))
    with pytest.raises(ValueError, match=r"'mauve'.*red"):
        w.Object("circle", "mauve", "large", (0, 0))
    with pytest.raises(ValueError, match=r"\(4, 0\)"):
        w.Object("circle", "red", "large", (4, 0))
    with pytest.raises(ValueError, match="share a cell"):
        w.Scene((w.Object("circle", "red", "large", (0, 0)),) * 2, "white")
    with pytest.raises(ValueError, match=r"7.*1, 2, 3, 4"):
        FULL.sample(rng, 7)
    with pytest.raises(ValueError, match=r"'haiku'.*single"):
        w.sample_caption(FULL, "haiku", rng)
    with pytest.raises(ValueError, match=r"'why'.*exists"):
        w.ask(FULL.sample(rng), "why", rng)
    with pytest.raises(ValueError, match=r"'melt'.*recolor"):
        w.edit_scene(FULL.sample(rng), "melt", FULL, rng)
    with pytest.raises(ValueError, match=r"'behind'.*left of"):
        w.Relation(0, 1, "behind")
    with pytest.raises(ValueError, match=r"\(1, 32, 32, 3\).*64, 64, 3"):
        w.parse_batch(np.zeros((1, 32, 32, 3), np.uint8))


# Pictures


def test_objects_fill_only_their_cell():
    thing = w.Object("star", "red", "large", (1, 2))
    drawn, empty = w.render(w.Scene((thing,), "striped")), w.render(w.Scene((), "striped"))
    changed = (drawn != empty).any(-1)
    assert changed[16:32, 32:48].any()
    assert changed.sum() == changed[16:32, 32:48].sum()


@pytest.mark.parametrize("background", TEXTURE)
def test_backgrounds_are_neutral_and_repeat_every_token(background):
    cell = backdrop(background)
    assert (cell == cell[..., :1]).all()
    assert len({cell[r : r + 8, c : c + 8].tobytes() for r in (0, 8) for c in (0, 8)}) == 1


@pytest.mark.parametrize("size", SIZES)
def test_shapes_differ(size):
    for one, two in combinations(SHAPES, 2):
        first, second = alpha(one, size), alpha(two, size)
        assert ((first - second) ** 2).sum() > 0.12 * max((first**2).sum(), (second**2).sum()), (one, two)


def test_a_picture_belongs_to_its_caller():
    scene = w.Scene((), "white")
    w.render(scene)[:] = 0
    assert w.render(scene).min() > 200


# Oracle


@worlds
def test_oracle_reads_clean_pictures(world, rng):
    drawn = scenes(world, rng)
    found = w.parse_batch(w.render_batch(drawn))
    assert [parsed.scene for parsed in found] == drawn
    assert not any(parsed.malformed for parsed in found)
    assert w.parse(w.render(drawn[0])) == found[0]


def test_oracle_reads_every_sprite():
    for background in BACKGROUNDS:
        for shape in SHAPES:
            for colors in (COLORS[:4], COLORS[4:]):
                grid = [
                    (row, size, col, color)
                    for row, size in enumerate(SIZES)
                    for col, color in enumerate(colors)
                ]
                drawn = tuple(w.Object(shape, color, size, (row, col)) for row, size, col, color in grid)
                halves = w.Scene(drawn[::2], background), w.Scene(drawn[1::2], background)
                found = w.parse_batch(w.render_batch(list(halves)))
                assert [parsed.scene for parsed in found] == list(halves)


@worlds
@pytest.mark.parametrize(("radius", "sigma"), [(0, 6), (0.5, 6), (0.7, 0), (0.7, 6), (0.8, 4)])
def test_oracle_reads_blurred_and_noisy_pictures(world, radius, sigma, rng):
    drawn = scenes(world, rng, 500)
    found = w.parse_batch(noisy(blurred(w.render_batch(drawn), radius), sigma, rng))
    assert np.mean([parsed.scene == scene for parsed, scene in zip(found, drawn, strict=True)]) >= 0.99
    assert not any(parsed.scene not in (None, scene) for parsed, scene in zip(found, drawn, strict=True))


def chimera(world, rng, **change):
    """A one-object picture in which one quarter of the object comes from a changed object."""
    scene = world.sample(rng, 1)
    (thing,) = scene.objects
    values = {name: [v for v in getattr(world, name + "s") if v != getattr(thing, name)] for name in change}
    other = replace(thing, **{name: found[int(rng.integers(len(found)))] for name, found in values.items()})
    picture = w.render(scene)
    row, col = thing.cell[0] * 16 + 8 * int(rng.integers(2)), thing.cell[1] * 16 + 8 * int(rng.integers(2))
    quarter = slice(row, row + 8), slice(col, col + 8)
    picture[quarter] = w.render(w.Scene((other,), scene.background))[quarter]
    return thing.cell, picture


@pytest.mark.parametrize(("attribute", "share"), [("color", 0.99), ("shape", 0.85)])
def test_oracle_refuses_one_wrong_token(attribute, share, rng):
    cases = [chimera(FULL, rng, **{attribute: None}) for _ in range(400)]
    found = w.parse_batch(np.stack([picture for _, picture in cases]))
    refused = [parsed.malformed == (cell,) for parsed, (cell, _) in zip(found, cases, strict=True)]
    assert np.mean(refused) >= share  # some quarters of two shapes are nearly the same


def test_oracle_refuses_what_is_no_object(rng):
    picture = w.render(w.Scene((w.Object("ring", "red", "large", (3, 3)),), "white"))
    picture[0:8, 0:8] = backdrop("black")[:8, :8]  # one background token of another background
    picture[16:32, 16:32] = rng.integers(0, 256, (16, 16, 3))
    picture[32:48, 0:8] = sprite("square", "red", "large", "white")[:, :8]  # half a square
    parsed = w.parse(picture)
    assert parsed.scene is None
    assert parsed.malformed == ((0, 0), (1, 1), (2, 0))
    assert [thing.shape for thing in parsed.objects] == ["ring"]


def test_oracle_refuses_noise(rng):
    parsed = w.parse(rng.integers(0, 256, (64, 64, 3)).astype(np.uint8))
    assert parsed.scene is None
    assert parsed.background is None
    assert len(parsed.malformed) == 16


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


@worlds
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
def test_captions_rarely_hold_by_chance(family, rng):
    captions = [w.sample_caption(FULL, family, rng) for _ in range(100)]
    others = scenes(FULL, rng, 100)
    assert np.mean([c.claim.holds(s) for c, s in zip(captions, others, strict=True)]) < 0.15


@worlds
def test_describe_holds(world, rng):
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


@worlds
@pytest.mark.parametrize("kind", w.QUESTION_KINDS)
def test_questions_of_every_kind(world, kind, rng):
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


def test_names_are_never_ambiguous(rng):
    for scene in scenes(FULL, rng, 300):
        for thing in scene.objects:
            name = refer(scene, thing)
            if name:
                shape, *color = reversed(name.split())
                same = [t for t in scene.objects if t.shape == shape and (not color or t.color == color[0])]
                assert same == [thing]


# Splits


@worlds
@pytest.mark.parametrize("family", [f for f in w.FAMILIES if f not in ("single", "counting")])
def test_caption_splits_share_no_fact_set(world, family, rng):
    def keys(draw):
        return {draw(world, family, rng).claim.key(background=False) for _ in range(150)}

    assert not keys(w.train_caption) & keys(w.test_caption)


def test_families_too_small_to_split_are_whole(rng):
    for family in ("single", "counting"):
        assert not any(w.caption_held_out(w.sample_caption(FULL, family, rng)) for _ in range(99))
        assert w.test_caption(FULL, family, rng).family == family


@worlds
def test_scene_and_edit_splits_are_disjoint(world, rng):
    for n in (None, 1):
        train = {w.train_scene(world, rng, n).key() for _ in range(200)}
        assert not train & {w.test_scene(world, rng, n).key() for _ in range(100)}
    assert not any(w.held_out(w.train_edit(world, rng).source.key()) for _ in range(50))
    assert all(w.held_out(w.test_edit(world, rng, ("add", "swap")).source.key()) for _ in range(20))


def test_share_of_held_out_scenes(rng):
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
