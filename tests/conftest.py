"""Fixtures shared by the test files: a complete checkpoint of random weights, built in a second."""

import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton: its kernels then run on a CPU

from diffusers import VQModel
from PIL import Image
from typer.testing import CliRunner

from dimoo.cli import app
from dimoo.model import LLaDAConfig, LLaDAForMultiModalGeneration
from dimoo.pipeline import DiMOOPipeline
from dimoo.settings import Defaults
from dimoo.vocab import Vocab
from dimoo_training import world as w
from dimoo_training.checkpoint import new_vocab
from dimoo_training.vq import ARCHITECTURE
from dimoo_training.words import build_tokenizer

torch.set_num_threads(1)  # the models here are too small for more

DEFAULTS = Defaults(
    height=32, width=32, image_side=64, steps=4, guidance_scale=2.0, text_guidance_scale=1.5,
    image_guidance_scale=2.0, temperature=1.0, text_length=12, text_steps=6, block_length=6,
)  # fmt: skip
CODES = 64


def build_pipeline(seed: int = 0) -> DiMOOPipeline:
    """A pipeline of random weights: 8 pixels a code, 64 codes, two layers; it draws 32x32 in four steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        small = {"block_out_channels": (8, 8, 8, 8), "latent_channels": 8, "vq_embed_dim": 4}
        vqvae = VQModel(**ARCHITECTURE | small | {"num_vq_embeddings": CODES}).eval()
        latents = vqvae.encode(torch.rand(1, 3, 64, 64)).latents  # so that pictures get many codes
        vqvae.quantize.embedding.weight.data = latents.detach()[0].flatten(1).T.contiguous()
        tokenizer = build_tokenizer(vocab_size=360, samples=150)
        vocab = new_vocab(tokenizer, CODES)
        config = LLaDAConfig(
            d_model=32, n_heads=4, n_layers=2, mlp_hidden_size=64, rope_theta=1000.0, qk_norm=True,
            max_sequence_length=512, vocab_size=vocab.size, mask_token_id=vocab.mask, pad_token_id=vocab.pad,
            eos_token_id=tokenizer.eos_token_id, image_token_offset=vocab.image_offset, codebook_size=CODES,
            initializer_range=0.2,
        )  # fmt: skip
        model = LLaDAForMultiModalGeneration(config).eval()
    pipeline = DiMOOPipeline(model, tokenizer, vqvae)
    pipeline.set_defaults(DEFAULTS)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """A checkpoint folder in the hosted layout, random weights. Read only: copy it before changing it."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    build_pipeline().save_pretrained(folder)
    return folder


@pytest.fixture
def tiny(tiny_folder) -> DiMOOPipeline:
    """The pipeline of `tiny_folder`, loaded afresh, so a test may change it."""
    pipeline = DiMOOPipeline.from_pretrained(tiny_folder)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture
def photo() -> Image.Image:
    """A colourful 64x64 picture in which no two cells of 8 pixels are alike."""
    noise = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(7))
    ramp = torch.linspace(0, 1, 64)
    pixels = torch.stack([ramp.expand(64, 64), ramp[:, None].expand(64, 64), noise[0]]) * 0.8 + 0.2 * noise
    return Image.fromarray((pixels.permute(1, 2, 0) * 255).byte().numpy())


@pytest.fixture(scope="session")
def vocab() -> Vocab:
    """A vocabulary of 40 ids: 8 special ones, 16 words, 16 image codes."""
    special = {"pad": 0, "mask": 1, "newline": 2, "boi": 3, "eoi": 4, "uncondition": 5, "boa": 6, "eoa": 7}
    return Vocab(**special, image_offset=24, codebook_size=16, size=40)


@pytest.fixture(scope="session")
def small_llada(vocab) -> LLaDAForMultiModalGeneration:
    """A two-layer model of `vocab` whose answers depend on everything it sees."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        config = LLaDAConfig(
            d_model=32, n_heads=4, n_kv_heads=2, n_layers=2, mlp_hidden_size=64, vocab_size=vocab.size,
            mask_token_id=vocab.mask, rope_theta=100.0, qk_norm=True, initializer_range=0.3,
        )  # fmt: skip
        return LLaDAForMultiModalGeneration(config).eval()


@pytest.fixture
def cli(tiny_folder, tmp_path, monkeypatch):
    """Call the `dimoo` command in an empty folder, with the model of `tiny_folder` unless the call names one."""
    monkeypatch.chdir(tmp_path)

    def call(*words, code: int = 0):
        words = [str(word) for word in words]
        if words[0] in ("generate", "edit", "inpaint", "ask") and not {"--model", "--from"} & set(words):
            words[1:1] = ["--model", str(tiny_folder)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def photo_file(photo, tmp_path) -> str:
    """`photo`, saved in the folder where `cli` runs."""
    photo.save(tmp_path / "photo.png")
    return "photo.png"


@pytest.fixture(scope="session")
def picture():
    """Draw a picture whose left half is red and whose right half is blue."""

    def draw(mode="RGB", size=(6, 4)) -> Image.Image:
        image = Image.new("RGB", size, (255, 0, 0))
        image.paste((0, 0, 255), (size[0] // 2, 0, size[0], size[1]))
        return image.convert(mode)

    return draw


@pytest.fixture(scope="session")
def encoded():
    """Turn a picture into the bytes of a file."""

    def encode(image, form="PNG", **options) -> bytes:
        file = io.BytesIO()
        image.save(file, form, **options)
        return file.getvalue()

    return encode


@pytest.fixture
def fresh_accelerate():
    """Accelerate keeps one precision a process, and other tests may have asked for another."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=w.WORLDS.values(), ids=list(w.WORLDS))
def world(request):
    """Every synthetic world in turn."""
    return request.param


@pytest.fixture(scope="session")
def scenes():
    """Sample many scenes of a world."""
    return lambda world, rng, count=1000: [world.sample(rng) for _ in range(count)]


@pytest.fixture
def serve(tiny):
    """Start the app on this machine with a pipeline (`tiny` by default); options: see `serving.Place.start`."""
    from serving import Place

    places = []

    def start(pipeline=tiny, **options):
        places.append(Place.start(pipeline, **options))
        return places[-1]

    yield start
    for place in places:
        place.stop()


@pytest.fixture(scope="module")
def server(tiny_folder):
    """One server for all tests of a file that only ask."""
    from serving import Place

    pipeline = DiMOOPipeline.from_pretrained(tiny_folder)
    pipeline.set_progress_bar_config(disable=True)
    place = Place.start(pipeline)
    yield place
    place.stop()


@pytest.fixture
def world64(tiny):
    """A pipeline that draws the world's 64x64 pixels, so that the oracle can look at its drawings."""
    tiny.set_defaults(replace(tiny.defaults, height=64, width=64))
    return tiny
