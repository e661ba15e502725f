"""Training of the image tokenizer: codes that see their own patch, what is minimised, exact resumption."""

import json
from dataclasses import replace
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
from dimoo_training.codebook import FAR, merge_doubles
from dimoo_training.local_encoder import LocalEncoder
from dimoo_training.patchwork import pairs
from dimoo_training.picture_loss import picture_loss
from dimoo_training.vq import ARCHITECTURE, VQRecipe, VQRun, agreement, contrast
from tokenizers_vq import VQImageTokenizer

SMALL = {"block_out_channels": (8, 8, 8, 8), "latent_channels": 8, "vq_embed_dim": 4}
MICRO = VQRecipe(minutes=4 / 60, polish=0.0, codes=16, batch=4, revive_every=1)
FIRST = w.WORLDS["first"]


@pytest.fixture
def small(monkeypatch):
    """Models of eight channels; a clock on which every step takes a second."""
    for name, value in SMALL.items():
        monkeypatch.setitem(ARCHITECTURE, name, value)
    latents = VQRun.many_latents
    monkeypatch.setattr(VQRun, "many_latents", lambda run: latents(run, batches=3))
    ticks = count()
    monkeypatch.setattr(vq, "time", SimpleNamespace(time=lambda: float(next(ticks))))


@pytest.fixture
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return VQModel(**ARCHITECTURE | SMALL, num_vq_embeddings=16)


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


def test_a_masked_layer_keeps_the_scale_of_what_it_reads(model):
    """Squares of a row's weights add up to the share of the channels that are no anchors."""
    LocalEncoder(model)
    found = []
    for kernel in kernels(model):
        rows = kernel.weight.square().sum((1, 2, 3))
        read = kernel.weight.abs().sum((0, 2, 3)) > 0
        found.append((rows[rows > 0].mean() / read.float().mean()).item())
    assert len(found) > 10 and np.mean(found) == pytest.approx(1, abs=0.15)


def test_anchors_are_constant_and_nobody_reads_them(model):
    LocalEncoder(model)
    maps = []
    for name, conv in model.encoder.named_modules():
        if name.endswith("conv1"):
            conv.register_forward_hook(lambda _, given, made: maps.append(made[:, : LocalEncoder.ANCHORS]))
    for seed in (0, 1):
        model.encode(torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(seed)))
    half = len(maps) // 2
    assert half > 3
    for one, other in zip(maps[:half], maps[half:], strict=True):
        assert torch.equal(one, other) and (one.amax((0, 2, 3)) == one.amin((0, 2, 3))).all()
        assert one[0, 0, 0, 0] == -one[0, 1, 0, 0] > 1


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
    grey = torch.full((2, 3, 16, 16), 0.5)
    filled = torch.zeros(2, 2, 2, dtype=torch.bool)
    filled[0, 0, 1] = True
    assert picture_loss(grey, grey, filled, 4.0) == 0
    assert picture_loss(grey + 0.1, grey, filled, 4.0).item() == pytest.approx(0.1 * (7 + 4) / 8)
    wrong = grey.clone()
    wrong[0, :, :8, 8:] += 0.1                                      # the object's patch: an eighth of the pixels
    step = 0.5 * (0.1 * 8 * 3 / grey.diff(dim=-1).numel()) * 2      # seen from its left and from below
    assert picture_loss(wrong, grey, filled, 4.0).item() == pytest.approx(4 * 0.1 / 8 + step)
    ramp = grey + torch.linspace(-0.1, 0.1, 16)
    expected = (ramp - grey).abs().mean().item() + 0.5 * 0.2 / 15
    assert picture_loss(ramp, grey, filled, 1.0).item() == pytest.approx(expected)


def test_the_contrast_is_low_when_a_patch_finds_its_meaning_in_the_other_twin():
    meaning = torch.tensor([[[5, 6], [0, 7]]]).repeat(2, 1, 1)
    shared = torch.tensor([[[True, True], [True, False]]])          # 0 means nothing, 7 is not shared
    apart = torch.eye(4).view(1, 2, 2, 4).repeat(2, 1, 1, 1) * 9
    assert contrast(apart, meaning, shared).item() < 0.01
    near = contrast(1 + apart / 100, meaning, shared).item()       # distances are in units of the spread
    assert near == pytest.approx(contrast(apart, meaning, shared).item(), rel=1e-2)
    swapped = apart.clone()
    swapped[1] = swapped[1].flip(1)
    assert contrast(swapped, meaning, shared).item() > 1
    same = torch.tensor([[[5, 5], [0, 0]]]).repeat(2, 1, 1)
    assert contrast(swapped, same, shared).item() == pytest.approx(0, abs=1e-5)    # either is right
    assert contrast(apart, meaning * 0, shared) == 0


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


def test_quantising_lets_gradients_through_and_moves_the_codes(small):
    run, generator = VQRun(MICRO), torch.Generator().manual_seed(0)
    run.codebook.start(torch.randn(16, 4, generator=generator))
    before = run.codebook.weight.clone()
    latents = torch.randn(4, 8, 8, 4, generator=generator).requires_grad_()
    used, tidy, agree = run.quantised(latents, torch.ones(2, 8, 8, dtype=torch.bool))
    closest = torch.cdist(latents.flatten(0, 2), before).argmin(1)
    torch.testing.assert_close(used, before[closest].view_as(used))
    (gradient,) = torch.autograd.grad((used * 3).sum(), latents, retain_graph=True)
    assert (gradient == 3).all()
    (gradient,) = torch.autograd.grad(tidy, latents)
    assert (gradient.abs().sum(-1) > 0).all()
    one, two = closest.view(4, 8, 8).chunk(2)
    assert agree == pytest.approx((one == two).float().mean().item())
    moved = (run.codebook.weight != before).any(1)
    assert moved[closest.unique()].all()


def test_a_larger_scale_has_as_many_codes_of_larger_patches(small):
    run = VQRun(replace(MICRO, scale=2))
    pixels, meaning, _ = run.pairs(1)
    assert pixels.shape == (2, 3, 128, 128) and meaning.shape == (2, 8, 8)
    assert run.model.encode(pixels).latents.shape == (2, 4, 8, 8)
    assert VQImageTokenizer(run.model).ratio == 16
    assert np.isfinite(run.advance()["loss"]) and stray(run.model) == 0


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
    assert all(entry["twins_agree"] == 0 for entry in measured[:8])
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
