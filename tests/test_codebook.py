"""The codebook starts with rare kinds, follows its latents, and is thinned out."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from dimoo_training.codebook import FAR, Codebook, compact, merge_doubles, nearest
from tokenizers_vq import VQImageTokenizer


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
    for _ in range(600):                                            # long enough for 0 / 0
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
        model = Flat(rows.clone())
        assert merge_doubles(model, pixels, tolerance) == left
        assert (model.quantize.embedding.weight.amax(1) < FAR).sum() == left


@torch.no_grad()
def test_compacting_changes_numbers_of_codes_only(tiny):
    model = tiny.vqvae
    pixels = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    weight = model.quantize.embedding.weight
    weight.copy_(model.encode(pixels).latents.permute(0, 2, 3, 1).flatten(0, 2)[::3])
    kept = torch.tensor([1, 2, 5, 11, 63])
    weight[[k for k in range(64) if k not in kept]] = FAR
    before = VQImageTokenizer(model)
    after = VQImageTokenizer(compact(model))
    assert after.codebook_size == after.model.quantize.embedding.weight.shape[0] == 5
    codes = after.encode(pixels)
    assert len(codes.unique()) > 2
    assert torch.equal(kept[codes], before.encode(pixels))
    assert torch.equal(after.decode(codes), before.decode(kept[codes]))
