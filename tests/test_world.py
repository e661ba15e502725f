"""The synthetic world: scenes, pictures, oracle."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from PIL import Image, ImageFilter

from dimoo_training import world as w
from dimoo_training.world.render import TEXTURE, alpha, backdrop, sprite
from dimoo_training.world.scene import BACKGROUNDS, COLORS, SHAPES, SIZES

FULL = w.WORLDS["full"]


def blurred(pictures, radius):
    filtered = (Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius)) for picture in pictures)
    return np.stack([np.asarray(picture) for picture in filtered])


def noisy(pictures, sigma, rng):
    return np.clip(pictures + rng.normal(0, sigma, pictures.shape), 0, 255).round().astype(np.uint8)


# Scenes


def test_sample_stays_in_the_world(world, rng, scenes):
    for scene in scenes(world, rng, 200):
        assert 1 <= len(scene.objects) <= world.max_objects
        assert scene.background in world.backgrounds
        assert [t.cell for t in scene.objects] == sorted({t.cell for t in scene.objects})
        assert w.Scene.from_key(scene.key()) == scene


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


def test_oracle_reads_clean_pictures(world, rng, scenes):
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


@pytest.mark.parametrize(("radius", "sigma"), [(0, 6), (0.5, 6), (0.7, 0), (0.7, 6), (0.8, 4)])
def test_oracle_reads_blurred_and_noisy_pictures(world, radius, sigma, rng, scenes):
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


# Larger pictures


def test_larger_pictures_are_finer_and_mean_the_same(rng, scenes):
    for scene in scenes(FULL, rng, 40):
        large = w.render(scene, 2)
        assert large.shape == (128, 128, 3)
        small = np.asarray(Image.fromarray(large).reduce(2))
        assert abs(small.astype(int) - w.render(scene)).max() <= 1
        assert w.parse(small).scene == scene
    finer = alpha("circle", "large", 2) - alpha("circle", "large").repeat(2, 0).repeat(2, 1)
    assert abs(finer).max() > 0.2
