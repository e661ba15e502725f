"""Dense maps are read back exactly, and pictures made from pictures hold what they claim."""

from dataclasses import replace

import numpy as np
import pytest

from dimoo_training import world as w
from dimoo_training.world.maps import KINDS, LEVELS, draw_map, read_map, stamp, stamps
from dimoo_training.world.scene import SHAPES, SIZES

FULL = w.WORLDS["full"]


@pytest.mark.parametrize("kind", KINDS)
def test_maps_are_read_back(kind, rng, scenes):
    for scene in scenes(FULL, rng, 150):
        drawn = draw_map(scene, kind)
        assert drawn.dtype == np.uint8 and drawn.shape == (64, 64, 3)
        assert read_map(drawn, kind) == stamps(scene, kind)
        noise = rng.normal(0, 6, drawn.shape)
        assert read_map(np.clip(drawn + noise, 0, 255).round().astype(np.uint8), kind) == stamps(scene, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_stamp_has_a_look_of_its_own(kind):
    levels = range(len(LEVELS) if kind == "depth" else 1)
    looks = {stamp(kind, shape, size, level).tobytes() for shape in SHAPES for size in SIZES for level in levels}
    assert len(looks) == len(SHAPES) * len(SIZES) * len(levels)


def test_depth_is_the_reading_order(rng):
    scene = FULL.sample(rng, 4)
    levels = [stamps(scene, "depth")[thing.cell][2] for thing in scene.objects]
    assert levels == [3, 2, 1, 0]                                   # the last is the nearest
    brightest = [draw_map(scene, "depth")[16 * r : 16 * r + 16, 16 * c : 16 * c + 16].max()
                 for r, c in (thing.cell for thing in scene.objects)]  # fmt: skip
    assert brightest == sorted(brightest) and brightest[-1] == LEVELS[0]


def test_edges_are_thinner_than_masks_and_maps_forget_colours(rng):
    scene = FULL.sample(rng, 3)
    area = {kind: (draw_map(scene, kind) > 100).sum() for kind in ("edges", "mask")}
    assert 0 < area["edges"] < area["mask"]
    gray = w.Scene(tuple(replace(t, color="red") for t in scene.objects), "gray")
    assert all((draw_map(scene, kind) == draw_map(gray, kind)).all() for kind in KINDS)


def test_what_is_no_stamp_is_read_as_something_else(rng):
    scene = w.Scene((w.Object("star", "red", "large", (1, 1)),), "white")
    drawn = draw_map(scene, "mask").copy()
    drawn[32:48, 32:48] = rng.integers(0, 256, (16, 16, 3))
    assert read_map(drawn, "mask") == {(1, 1): ("star", "large", 0), (2, 2): None}
    assert read_map(draw_map(scene, "mask"), "edges")[1, 1] is None


def test_wrong_maps_are_named():
    with pytest.raises(ValueError, match=r"'fog'.*edges, mask, depth"):
        draw_map(w.Scene((), "white"), "fog")
    with pytest.raises(ValueError, match=r"\(32, 32, 3\).*\(64, 64, 3\)"):
        read_map(np.zeros((32, 32, 3), np.uint8), "mask")


@pytest.mark.parametrize("kind", w.REFERENCES)
def test_the_target_fulfils_the_claim_and_the_sources_do_not(kind, world, rng):
    kept = 0
    for _ in range(60):
        made = w.REFERENCES[kind](world, rng)
        assert made.claim.holds(made.target)
        kept += any(made.claim.holds(source) for source in made.sources)
    assert kept < 20                                                # a style may be the content's own


def test_a_subject_stands_alone_in_its_source_and_is_never_named(rng):
    for _ in range(60):
        made = w.REFERENCES["subject"](FULL, rng)
        (shown,) = made.sources[0].objects
        assert made.claim.patterns[0] == w.Pattern(shown.shape, shown.color, shown.size)
        assert shown.shape not in made.text and "object" in made.text


def test_restyling_keeps_places_and_shapes_and_takes_palette_and_ground(rng):
    for _ in range(40):
        content, style = FULL.sample(rng), FULL.sample(rng, 2)
        target = w.restyle(content, style)
        assert [(t.shape, t.size, t.cell) for t in target.objects] == [
            (t.shape, t.size, t.cell) for t in content.objects
        ]
        palette = [t.color for t in style.objects]
        assert [t.color for t in target.objects] == (palette * 2)[: len(content.objects)]
        assert target.background == style.background


def test_reference_splits_are_disjoint(rng):
    def keys(draw, kind, count):
        made = (draw(FULL, kind, rng) for _ in range(count))
        return {"+".join(scene.key() for scene in one.sources) for one in made}

    for kind in w.REFERENCES:
        assert not any(map(w.held_out, keys(w.train_reference, kind, 60)))
        assert all(map(w.held_out, keys(w.test_reference, kind, 20)))
