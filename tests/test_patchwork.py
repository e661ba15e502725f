"""The image tokenizer's training pictures: twins share what they say, and a patch's meaning is its pixels."""

import numpy as np
import pytest
import torch

from dimoo_training import patchwork
from dimoo_training import world as w
from dimoo_training.patchwork import SIDE, pairs
from dimoo_training.world.render import backdrop

FULL = w.WORLDS["full"]


def patches(pixels):
    """(n, 3, 64, 64) -> (n, 8, 8, 192)."""
    return pixels.unflatten(2, (SIDE, 8)).unflatten(4, (SIDE, 8)).permute(0, 2, 4, 1, 3, 5).flatten(3)


@pytest.fixture(scope="module")
def drawn():
    return pairs(FULL, 40, np.random.default_rng(0))


def test_pairs_have_pixels_meanings_and_shares(drawn):
    pixels, meaning, shared = drawn
    assert pixels.shape == (80, 3, 64, 64) and meaning.shape == (80, 8, 8) and shared.shape == (40, 8, 8)
    assert 0 <= pixels.min() < 0.1 and 0.9 < pixels.max() <= 1 and shared.dtype == torch.bool
    assert 0.2 < shared.float().mean() < 0.9


def test_shared_patches_mean_the_same(drawn):
    pixels, meaning, shared = drawn
    one, two = meaning.chunk(2)
    assert torch.equal(one[shared], two[shared])
    first, second = patches(pixels).chunk(2)
    same = (first == second).all(-1)
    assert 0.3 < (shared & same)[shared].float().mean() < 1         # the others stand on another background
    assert (shared & (one == 0) & ~same).sum() == 0                 # nothing is shared on one background only


def test_equal_meanings_are_equal_pixels_on_one_background(drawn):
    pixels, meaning, _ = drawn
    shown, pictures = patches(pixels), {}
    for picture, parts in zip(shown, meaning, strict=True):
        ground = picture[parts == 0].mode(0).values if (parts == 0).any() else None
        for number in parts.unique().tolist():
            looks = picture[parts == number].unique(dim=0)
            assert len(looks) == 1, "a picture shows one meaning in two ways"
            if ground is not None and number:
                key = number, ground.numpy().tobytes()
                assert pictures.setdefault(key, looks.numpy().tobytes()) == looks.numpy().tobytes()


def test_whole_objects_are_read_by_the_oracle(monkeypatch):
    monkeypatch.setattr(patchwork, "PATCHWORKS", 0.0)
    monkeypatch.setattr(patchwork, "FILLED", (0.1, 0.4))            # the oracle reads the background off most cells
    pixels, meaning, shared = pairs(FULL, 10, np.random.default_rng(1), maps=0.0)
    parsed = w.parse_batch((pixels.permute(0, 2, 3, 1) * 255).round().byte().numpy())
    assert all(found.scene is not None for found in parsed)
    for found, parts in zip(parsed, meaning, strict=True):
        filled = {tuple(cell) for cell in (parts.view(4, 2, 4, 2) > 0).any(3).any(1).nonzero().tolist()}
        assert filled == {thing.cell for thing in found.scene.objects}
    cells = shared.view(10, 4, 2, 4, 2)
    assert torch.equal(cells.any(4).any(2), cells.all(4).all(2))    # shared by whole cells


def test_patchworks_mix_quarters_and_maps_stand_on_black(monkeypatch):
    monkeypatch.setattr(patchwork, "PATCHWORKS", 1.0)
    pixels, meaning, _ = pairs(FULL, 6, np.random.default_rng(2), maps=1.0)
    black = torch.from_numpy(backdrop("black")[:8, :8].copy()).permute(2, 0, 1).flatten().float() / 255
    assert (patches(pixels)[meaning == 0] == black).all()
    assert (pixels[:, :1] == pixels[:, 1:]).all()                   # maps are grey
    assert len(meaning.unique()) > 30


def test_the_generator_decides(drawn):
    again = pairs(FULL, 40, np.random.default_rng(0))
    assert all(torch.equal(one, two) for one, two in zip(drawn, again, strict=True))
