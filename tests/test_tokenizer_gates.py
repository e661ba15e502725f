"""The gates of an image tokenizer: a perfect one reaches them all, and each fault misses its own."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dimoo_training import world as w
from dimoo_training.evaluation.tokenizer import GATES, measure, samples
from dimoo_training.picture_tasks import Map, paint
from tokenizers_vq import ToyImageTokenizer

COUNT = 12


class Perfect:
    """A code for every patch that occurs in the samples, decoded as it was; `ratio` pixels a code."""

    def __init__(self, ratio=8):
        self.ratio, self.table = ratio, {}
        self.patches = []
        for picture in samples(COUNT, 0):
            self.encode(torch.from_numpy(paint(picture, ratio // 8).copy()).permute(2, 0, 1)[None].float() / 255)

    @property
    def codebook_size(self):
        return len(self.patches)

    def encode(self, pixels):
        cut = pixels.unfold(2, self.ratio, self.ratio).unfold(3, self.ratio, self.ratio).permute(0, 2, 3, 1, 4, 5)
        return torch.tensor([[[self.code(patch) for patch in row] for row in picture] for picture in cut])

    def code(self, patch):
        key = (patch * 255).round().byte().numpy().tobytes()
        if key not in self.table:
            self.table[key] = len(self.patches)
            self.patches.append(patch.clone())
        return self.table[key]

    def decode(self, codes):
        rows = [[torch.cat([self.patches[k] for k in row], -1) for row in picture] for picture in codes.tolist()]
        return torch.stack([torch.cat(row, -2) for row in rows])


@pytest.mark.parametrize("ratio", [8, 16])
def test_a_perfect_tokenizer_reaches_every_gate(ratio, tmp_path):
    tokenizer = Perfect(ratio)
    measured = measure(tokenizer, COUNT, 0, tmp_path / "sheet.png")
    assert (measured.parsed, measured.maps_parsed, measured.stability, measured.usage) == (1, 1, 1, 1)
    assert measured.missed() == [] and measured.psnr > 60
    assert 2 < measured.perplexity < tokenizer.codebook_size
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    first, side = paint(samples(COUNT, 0)[0], ratio // 8), 8 * ratio
    assert (sheet[2 : 2 + side, 2 : 2 + side] == first).all()
    assert (sheet[4 + side : 4 + 2 * side, 2 : 2 + side] == first).all()
    measured.write(tmp_path / "gates.json")
    assert json.loads((tmp_path / "gates.json").read_text())["stability"] == 1.0
    assert sum("reached" in line for line in measured.lines()) == len(GATES)


def test_faults_miss_their_gates():
    class Unstable(Perfect):
        def encode(self, pixels):
            return super().encode(pixels).roll(1, -1) if getattr(self, "ready", False) else super().encode(pixels)

    tokenizer = Unstable()
    tokenizer.ready = True
    measured = measure(tokenizer, COUNT, 0)
    assert measured.missed() == list(GATES) and measured.usage == 1 and measured.psnr < 30
    assert any("missed" in line for line in measured.lines())


class Restless(Perfect):
    """The same pictures under other codes each time."""

    calls = 0

    @property
    def codebook_size(self):
        return 2 * len(self.patches)

    def encode(self, pixels):
        self.calls += 1
        return super().encode(pixels) + self.calls % 2 * len(self.patches)

    def decode(self, codes):
        return super().decode(codes % len(self.patches))


def test_codes_that_change_miss_stability_alone():
    tokenizer = Restless()
    tokenizer.calls = 0
    assert measure(tokenizer, COUNT, 0).missed() == ["stability"]


def test_mean_colours_are_not_enough():
    measured = measure(ToyImageTokenizer(), COUNT, 0)
    assert measured.missed()[:2] == ["parsed", "maps_parsed"] and measured.stability == 1
    assert 0 < measured.usage < 1 and 1 < measured.perplexity < 64


def test_samples_are_held_out_and_have_every_map():
    drawn = samples(COUNT, 1)
    assert all(w.held_out(scene.key()) for scene in drawn[:COUNT])
    assert [picture.scene for picture in drawn[COUNT:]] == drawn[:COUNT]
    assert {picture.kind for picture in drawn[COUNT:]} == {"edges", "mask", "depth"}
    assert samples(COUNT, 1) == drawn != samples(COUNT, 2) and not any(isinstance(p, Map) for p in drawn[:COUNT])


def test_a_tokenizer_that_does_not_fit_the_world_is_refused():
    with pytest.raises(ValueError, match="a code of 4 pixels"):
        measure(ToyImageTokenizer(ratio=4), 1, 0)


def test_the_command_says_which_gates_are_missed(cli, tiny_folder):
    result = cli("eval", "tokenizer", "--vq", tiny_folder / "vqvae", "--count", 3, "--json", "g.json",
                 "--sheet", "s.png", code=1)  # fmt: skip
    assert "missed" in result.output and "perplexity" in result.output
    assert Image.open("s.png").width > 8 * 64 and json.loads(Path("g.json").read_text())["parsed"] < 0.99
