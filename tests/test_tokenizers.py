"""The VQ wrapper is the model's own arithmetic without the scaling and re-quantising around it; the toy is exact."""

import pytest
import torch
from diffusers import VQModel

from tokenizers_vq import ToyImageTokenizer, VQImageTokenizer
from tokenizers_vq.base import check_codes, check_pixels


@pytest.fixture
def vq(tiny):
    return tiny.vqvae


@pytest.fixture
def images(vq):
    return VQImageTokenizer(vq)


@torch.no_grad()
def test_codes_are_the_nearest_rows_of_the_codebook(vq, images, photo):
    from dimoo.tasks.base import to_pixels

    pixels = to_pixels(photo)[None]
    latents = vq.quant_conv(vq.encoder(pixels))  # in [0, 1], not [-1, 1]
    distance = torch.cdist(latents.flatten(2).mT, vq.quantize.embedding.weight[None])
    assert torch.equal(images.encode(pixels).flatten(), distance.argmin(-1).flatten())


@torch.no_grad()
def test_decoding_looks_codes_up(vq, images):
    codes = torch.arange(16).view(1, 4, 4)
    rows = vq.quantize.embedding.weight[:16].T.reshape(1, -1, 4, 4)
    expected = vq.decoder(vq.post_quant_conv(rows)).clamp(0, 1)
    torch.testing.assert_close(images.decode(codes), expected)


def test_decoding_never_quantises_again(vq, images, monkeypatch):
    monkeypatch.setattr(vq.quantize, "forward", None)
    assert images.decode(torch.arange(4).view(1, 2, 2)).shape == (1, 3, 16, 16)


def test_sizes_come_from_the_model(images):
    assert (images.ratio, images.codebook_size) == (8, 64)
    two = VQModel(block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2, num_vq_embeddings=10,
                  up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4)  # fmt: skip
    assert (VQImageTokenizer(two).ratio, VQImageTokenizer(two).codebook_size) == (2, 10)


def test_a_low_precision_model_gives_float_pixels(vq):
    images = VQImageTokenizer(vq.to(torch.bfloat16))
    codes = images.encode(torch.rand(1, 3, 16, 16))
    assert codes.dtype == torch.int64
    assert images.decode(codes).dtype == torch.float32


def test_the_model_is_not_changed(vq, images):
    before = {name: value.clone() for name, value in vq.state_dict().items()}
    images.decode(images.encode(torch.rand(2, 3, 16, 16)))
    assert all(torch.equal(value, before[name]) for name, value in vq.state_dict().items())


@pytest.mark.parametrize(("ratio", "levels"), [(8, 4), (2, 3), (1, 5)])
def test_the_toy_is_exact_on_what_it_decoded(ratio, levels):
    toy = ToyImageTokenizer(ratio, levels)
    assert toy.codebook_size == levels**3
    codes = torch.arange(toy.codebook_size).view(1, levels, -1)
    assert torch.equal(toy.encode(toy.decode(codes)), codes)
    assert toy.decode(codes).flatten(2).unique(dim=2).shape[-1] == levels**3  # every code has a colour of its own


def test_what_messages_say():
    with pytest.raises(ValueError, match=r"\(B, 3, H, W\), got \(2, 2\)"):
        check_pixels(torch.zeros(2, 2), 8)
    with pytest.raises(ValueError, match="multiples of 8, got 16x12"):
        check_pixels(torch.zeros(1, 3, 16, 12), 8)
    with pytest.raises(ValueError, match=r"\[0, 4\), got values from 0 to 7"):
        check_codes(torch.tensor([[[0, 7]]]), 4)
    check_codes(torch.zeros(1, 0, 0, dtype=torch.long), 4)
