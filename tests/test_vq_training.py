"""Training of the image tokenizer: codes that see their own patch, the codebook's life, twins, exact resumption."""

import json
from functools import partial
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from diffusers import VQModel
from torch import nn

from dimoo_training import vq
from dimoo_training import world as w
from dimoo_training.codebook import FAR, Codebook, compact, merge_doubles, nearest
from dimoo_training.twins import pairs, shared_cells, twin
from dimoo_training.vq import ARCHITECTURE, LocalEncoder, VQRecipe, VQRun, agreement, picture_loss
from tokenizers_vq import VQImageTokenizer

SMALL = {"block_out_channels": (8, 8, 8, 8), "latent_channels": 8, "vq_embed_dim": 4}
MICRO = VQRecipe(minutes=4 / 60, codes=16, batch=4, revive_every=1)
FIRST = w.WORLDS["first"]


@pytest.fixture
def small(monkeypatch):
    """Models of eight channels; a clock on which every step takes a second."""
    for name, value in SMALL.items():
        monkeypatch.setitem(ARCHITECTURE, name, value)
    ticks = count()
    monkeypatch.setattr(vq, "time", SimpleNamespace(time=lambda: float(next(ticks))))


@pytest.fixture
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return VQModel(**ARCHITECTURE | SMALL, num_vq_embeddings=16)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# The local encoder


def kernels(model):
    return [m for m in model.encoder.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]


def stray(model):
    """Largest weight of a tap that looks beyond the code's own pixels."""
    beyond = []
    for kernel in kernels(model):
        taps = kernel.weight.detach().clone()
        taps[:, :, slice(0, 2) if kernel.stride == (2, 2) else 1, slice(0, 2) if kernel.stride == (2, 2) else 1] = 0
        beyond.append(taps.abs().max().item())
    return max(beyond)


def seen_from(model, row, column):
    """(64, 64) bool: the pixels on which a latent depends."""
    pixels = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    model.encode(pixels).latents[0, :, row, column].square().sum().backward()
    return pixels.grad[0].abs().sum(0) > 0


def without_norms(module):
    for name, child in module.named_children():
        if isinstance(child, nn.GroupNorm):
            setattr(module, name, nn.Identity())
        without_norms(child)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (3, 5), (7, 7)])
def test_a_code_sees_its_own_patch_and_all_of_it(model, row, column):
    patch = torch.zeros(64, 64, dtype=torch.bool)
    patch[8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = True
    without_norms(model.encoder)                                    # they see the whole picture, as two numbers
    assert (seen_from(model, row, column) & ~patch).any()           # what the format does by itself
    LocalEncoder(model)
    assert torch.equal(seen_from(model, row, column), patch)


def test_the_mask_leaves_the_spread_of_what_a_layer_gives(model):
    assert len(kernels(model)) > 10
    before = [kernel.weight.square().sum().item() for kernel in kernels(model)]
    LocalEncoder(model)
    after = [kernel.weight.square().sum().item() for kernel in kernels(model)]
    assert np.mean(np.array(after) / before) == pytest.approx(1, abs=0.15)


def test_a_step_leaves_the_encoder_local(small):
    run = VQRun(MICRO)
    before = kernels(run.model)[1].weight.clone()
    run.advance()
    assert not torch.equal(kernels(run.model)[1].weight, before)
    assert stray(run.model) == 0
    for kernel in kernels(run.model):
        nn.init.ones_(kernel.weight)
    run.local.apply()
    assert stray(run.model) == 0 and all(kernel.weight.any() for kernel in kernels(run.model))


# What is minimised


def test_the_picture_loss_looks_at_objects_and_edges():
    grey = torch.full((1, 3, 8, 8), 0.5)
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    for pixels in (grey, red):
        assert picture_loss(pixels, pixels, 4.0) == 0
    assert picture_loss(grey + 0.1, grey, 4.0).item() == pytest.approx(0.1)
    assert picture_loss(red - 0.1, red, 4.0).item() == pytest.approx(0.4)
    ramp = grey + torch.linspace(-0.1, 0.1, 8)
    assert picture_loss(ramp, grey, 1.0).item() == pytest.approx((ramp - grey).abs().mean().item() + 0.5 * 0.2 / 7)


def test_agreement_is_about_shared_cells_and_the_other_twin():
    values = torch.arange(16.0).view(2, 2, 2, 2)
    shared = torch.tensor([[[True, False], [False, False]]])
    one, two = values[0, 0, 0], values[1, 0, 0]
    expected = F.mse_loss(one, two) * 2
    assert torch.equal(agreement(values, values, shared), expected)
    changed = values.clone()
    changed[:, 1] += 5                                              # not shared
    assert torch.equal(agreement(changed, values, shared), expected)
    assert agreement(values, values.flip(0), shared) == 0           # each is what its twin got


# The codebook


def embedding(rows):
    return nn.Embedding.from_pretrained(torch.as_tensor(rows, dtype=torch.float32))


def test_the_start_gives_rare_kinds_a_code_and_the_common_one_only_one():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(16, 4, generator=generator) * 5
    kinds = torch.cat([torch.zeros(3000, dtype=torch.long), torch.arange(1, 16)])      # 15 are seen once
    kinds = kinds[torch.randperm(len(kinds), generator=generator)]
    latents = centres[kinds] + 0.05 * torch.randn(len(kinds), 4, generator=generator)
    codebook = Codebook(embedding(torch.zeros(16, 4)), 0.9)
    assert not codebook.started
    codebook.start(latents)
    assert codebook.started
    assert sorted(torch.cdist(codebook.weight, centres).argmin(1).tolist()) == list(range(16))
    assert (codebook.weight[:, None] == latents).all(-1).any(1).all()                   # codes are latents
    assert nearest(codebook.weight.view(2, 8, 4), codebook.weight).tolist() == [list(range(8)), list(range(8, 16))]


def test_codes_move_to_the_running_mean_of_their_latents():
    codebook = Codebook(embedding([[0.0, 0.0], [10.0, 10.0]]), 0.75)
    codebook.start(torch.tensor([[0.0, 0.0], [10.0, 10.0]]))
    codebook.update(torch.tensor([[4.0, 0.0], [2.0, 6.0]]), torch.tensor([0, 0]))
    # counts 0.75 + 0.25 * 2, sums 0.25 * (6, 6); the other code has lost weight but stays where it was
    torch.testing.assert_close(codebook.weight, torch.tensor([[1.2, 1.2], [10.0, 10.0]]))
    torch.testing.assert_close(codebook.counts, torch.tensor([1.25, 0.75]))
    for _ in range(100):
        codebook.update(torch.tensor([[4.0, 2.0]]), torch.tensor([0]))
    torch.testing.assert_close(codebook.weight, torch.tensor([[4.0, 2.0], [10.0, 10.0]]))
    assert codebook.counts[1] < 1e-3                                # unused


def test_unused_codes_go_to_where_they_are_missed():
    codebook = Codebook(embedding(torch.zeros(4, 2)), 0.9)
    codebook.start(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]))
    codebook.counts[1:3] = 0
    dead, kept = codebook.counts == 0, codebook.weight.clone()
    well = torch.tensor([[0.0, 0.1]]).repeat(50, 1)
    codebook.revive(well, torch.Generator().manual_seed(0))
    assert torch.equal(codebook.weight, kept)                       # nothing is missed
    far = torch.tensor([[9.0, -9.0]])
    codebook.revive(torch.cat([well, far]), torch.Generator().manual_seed(0))
    assert torch.equal(codebook.weight[~dead], kept[~dead])
    moved = (codebook.weight != kept).any(1)
    assert moved.sum() == 1 and torch.equal(codebook.weight[moved], far)
    assert codebook.counts[moved] > 0
    torch.testing.assert_close(codebook.sums[moved] / codebook.counts[moved, None], far)


class Flat:
    """Stands in for a VQModel: the latent of a patch is its mean colour, and a code is drawn as its colour."""

    def __init__(self, rows):
        self.quantize = SimpleNamespace(embedding=embedding(rows))

    def encode(self, pixels):
        return SimpleNamespace(latents=F.avg_pool2d(pixels, 8))

    def decode(self, rows, force_not_quantize):
        return SimpleNamespace(sample=rows.repeat_interleave(8, 2).repeat_interleave(8, 3))


def test_doubles_are_taken_out_and_needed_codes_stay():
    generator = torch.Generator().manual_seed(0)
    colours = torch.cartesian_prod(*[torch.tensor([0.1, 0.5, 0.9])] * 3)                # 27, none near another
    doubles = (colours[:9] + 0.002).repeat(2, 1) + 0.001 * torch.rand(18, 3, generator=generator)
    unseen = colours[:4] + 0.2
    model = Flat(torch.cat([colours, doubles, unseen])[torch.randperm(49, generator=generator)])
    kinds = torch.cat([torch.arange(27), torch.randint(9, (64 * 4 - 27,), generator=generator)])
    jitter = 0.002 * torch.rand(256, 3, generator=generator)                            # so that doubles are used
    patches = (colours[kinds] + jitter)[torch.randperm(256, generator=generator)]
    pixels = patches.view(4, 8, 8, 3).permute(0, 3, 1, 2)
    pixels = pixels.repeat_interleave(8, 2).repeat_interleave(8, 3)
    weight = model.quantize.embedding.weight
    before = nearest(patches, weight).unique()
    assert len(before) > 27

    assert merge_doubles(model, pixels) == 27
    left = weight[weight.amax(1) < FAR]
    distance = torch.cdist(colours, left)
    assert len(left) == 27 and distance.argmin(1).unique().numel() == 27
    assert distance.min(1).values.max() < 0.01
    assert len(merge_again := nearest(patches, weight).unique()) == 27 and weight[merge_again].amax() < FAR


def test_the_tolerance_decides_what_is_a_double():
    rows = torch.tensor([[0.2] * 3, [0.3] * 3, [0.8] * 3])
    pixels = torch.tensor([0.2, 0.3, 0.3, 0.8]).view(1, 1, 2, 2).expand(1, 3, 2, 2)
    pixels = pixels.repeat_interleave(8, 2).repeat_interleave(8, 3)
    for tolerance, left in ((0.05, 3), (0.15, 2), (1.0, 1), (1e9, 1)):
        assert merge_doubles(Flat(rows.clone()), pixels, tolerance) == left


@torch.no_grad()
def test_compacting_changes_numbers_of_codes_only(model):
    pixels = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    weight = model.eval().quantize.embedding.weight
    weight.copy_(model.encode(pixels).latents.permute(0, 2, 3, 1).flatten(0, 2)[::12])
    kept = torch.tensor([1, 2, 5, 11, 15])
    weight[[k for k in range(16) if k not in kept]] = FAR
    before = VQImageTokenizer(model)
    after = VQImageTokenizer(compact(model))
    assert after.codebook_size == after.model.quantize.embedding.weight.shape[0] == 5
    codes = after.encode(pixels)
    assert len(codes.unique()) > 2
    assert torch.equal(kept[codes], before.encode(pixels))
    assert torch.equal(after.decode(codes), before.decode(kept[codes]))


# Twins


def test_cells_are_shared_when_they_show_the_same():
    star, moved = (w.Object("star", "red", "large", cell) for cell in ((0, 1), (2, 2)))
    blue, heart = w.Object("star", "blue", "large", (0, 1)), w.Object("heart", "red", "large", (3, 3))
    one = w.Scene((star, heart), "white")

    def apart(*objects, background):
        return set(map(tuple, np.argwhere(~shared_cells(one, w.Scene(objects, background), 4)).tolist()))

    assert apart(star, heart, background="white") == set()
    assert apart(star, moved, background="white") == {(2, 2), (3, 3)}
    assert apart(blue, heart, background="white") == {(0, 1)}
    everywhere = {(row, column) for row in range(4) for column in range(4)}
    assert apart(star, background="black") == everywhere - {(0, 1)}  # an object is shared on another background


def test_pairs_share_what_they_say(rng):
    pixels, shared = pairs(FIRST, 12, rng)
    assert pixels.shape == (24, 3, 64, 64) and shared.shape == (12, 8, 8)
    assert 0 <= pixels.min() < 0.1 and 0.9 < pixels.max() <= 1
    scenes = [parsed.scene for parsed in w.parse_batch((pixels.permute(0, 2, 3, 1) * 255).round().byte().numpy())]
    for k, (one, two) in enumerate(zip(scenes[:12], scenes[12:], strict=True)):
        assert torch.equal(shared[k], torch.from_numpy(shared_cells(one, two, 4).repeat(2, 0).repeat(2, 1)))
        if one.background == two.background:
            same = (pixels[k] == pixels[k + 12]).all(0).view(4, 16, 4, 16).all(3).all(1)
            assert torch.equal(shared[k, ::2, ::2], same)
    assert 0.1 < shared.float().mean() < 0.9


def test_a_twin_keeps_about_half(rng):
    kept = backgrounds = objects = 0
    for _ in range(300):
        scene = FIRST.sample(rng)
        other = twin(FIRST, scene, rng)
        assert other.objects
        objects += len(scene.objects)
        kept += len(set(scene.objects) & set(other.objects))
        backgrounds += scene.background == other.background
    assert abs(kept / objects - 0.6) < 0.08
    assert abs(backgrounds / 300 - 2 / 3) < 0.1


# Runs


def weights(run):
    return [value.clone() for value in run.model.state_dict().values()]


@pytest.mark.parametrize(("steps", "started"), [(1, False), (3, True)])
def test_a_restored_run_goes_on_exactly(small, tmp_path, steps, started):
    run = VQRun(MICRO)
    for _ in range(steps):
        run.advance()
    assert run.codebook.started is started
    run.save(tmp_path / "state.pt")
    expected = [run.advance() for _ in range(3)]

    torch.manual_seed(123)
    other = VQRun(MICRO)
    other.restore(tmp_path / "state.pt")
    assert [other.advance() for _ in range(3)] == expected
    assert all(torch.equal(a, b) for a, b in zip(weights(run), weights(other), strict=True))
    assert torch.equal(run.codebook.counts, other.codebook.counts)
    assert (other.step, other.seconds) == (run.step, run.seconds) == (steps + 3, steps + 3.0)
    assert stray(other.model) == 0


def test_a_run_learns_and_uses_its_codebook(small):
    run = VQRun(VQRecipe(minutes=40 / 60, codes=16, batch=8))
    measured = [run.advance() for _ in range(30)]
    assert all(np.isfinite(list(entry.values())).all() for entry in measured)
    first, last = (np.mean([entry["loss"] for entry in part]) for part in (measured[:3], measured[-3:]))
    assert last < 0.8 * first
    assert all(entry["twins_agree"] == 0 for entry in measured[:12])
    assert measured[-1]["twins_agree"] > 0.3


def test_training_ends_in_a_tokenizer_to_load_and_a_kill_changes_nothing(small, tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(vq, "merge_doubles", partial(merge_doubles, tolerance=-1))     # four steps teach no meanings
    whole = vq.train(MICRO, tmp_path / "whole", log=heard.append)
    loaded = VQModel.from_pretrained(tmp_path / "whole").eval()
    tokenizer, pixels = VQImageTokenizer(loaded), pairs(FIRST, 4, np.random.default_rng(1))[0]
    codes = tokenizer.encode(pixels)
    assert codes.shape == (8, 8, 8)
    assert 2 <= tokenizer.codebook_size <= 16 and len(codes.unique()) > 1
    assert f"{tokenizer.codebook_size} of 16" in heard[-1]
    assert tokenizer.decode(codes).shape == pixels.shape
    assert stray(loaded) == 0 and loaded.quantize.embedding.weight.max() < FAR
    assert json.loads((tmp_path / "whole" / "recipe.json").read_text())["codes"] == 16

    class Killed(Exception):
        pass

    advance = VQRun.advance

    def mortal(run):
        if run.step == 3:
            raise Killed
        run.save(tmp_path / "killed" / "state.pt")
        return advance(run)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(VQRun, "advance", mortal)
        vq.train(MICRO, tmp_path / "killed", log=heard.append)
    assert not (tmp_path / "killed" / "config.json").exists()
    resumed = vq.train(MICRO, tmp_path / "killed", log=heard.append)
    for other in (loaded, resumed):
        for name, value in whole.state_dict().items():
            assert torch.equal(other.state_dict()[name], value), name
