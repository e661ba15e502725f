"""The checkpoint a run leaves: the hosted layout, ready to load. Nothing here needs diffusers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from dimoo import __version__
from dimoo.checkpoint import forget_places, write_index
from dimoo.model.config import LLaDAConfig
from dimoo.model.llada import LLaDAForMultiModalGeneration
from dimoo.settings import Defaults
from dimoo.vocab import TOKEN_STRINGS, Vocab
from dimoo_training.state import replace_folder

DEFAULTS = Defaults(
    height=64, width=64, image_side=64, steps=64, guidance_scale=0.0, text_guidance_scale=0.0,
    image_guidance_scale=0.0, temperature=0.8, text_length=48, text_steps=16, block_length=48,
)  # fmt: skip
"""How a model of the small world is sampled unless the user says otherwise."""
VQ_WEIGHTS = "diffusion_pytorch_model.safetensors"


def new_vocab(tokenizer, codebook_size: int) -> Vocab:
    """The vocabulary of a new model: the tokenizer's ids, then the image codes, last."""
    known = tokenizer.get_vocab()
    ids = {role: known[strings[0]] for role, strings in TOKEN_STRINGS.items()}
    offset = max(known.values()) + 1
    return Vocab(**ids, image_offset=offset, codebook_size=codebook_size, size=offset + codebook_size)


def codebook_of(vq_folder: Path) -> Tensor:
    """(K, e) codebook of an image tokenizer in diffusers' layout, read without diffusers."""
    return load_file(vq_folder / VQ_WEIGHTS)["quantize.embedding.weight"]


def assemble(
    config: LLaDAConfig, weights: dict[str, Tensor], tokenizer, vq_folder: Path, folder: Path, scale: int = 1
) -> None:
    """Write model (as bfloat16), text tokenizer, image tokenizer and sampling defaults aside, then to `folder`."""
    aside = folder.with_name(folder.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    write_model(config, weights, aside)
    tokenizer.save_pretrained(aside)
    (aside / "vqvae").mkdir()
    for name in ("config.json", VQ_WEIGHTS):
        shutil.copyfile(vq_folder / name, aside / "vqvae" / name)
    forget_places(aside)
    side = DEFAULTS.height * scale
    write_index(aside, replace(DEFAULTS, height=side, width=side, image_side=side), __version__)
    replace_folder(aside, folder)


def write_model(config: LLaDAConfig, weights: dict[str, Tensor], folder: Path) -> None:
    """config.json and safetensors of weights under the names of the model's own state, as bfloat16."""
    with torch.device("meta"):
        shell = LLaDAForMultiModalGeneration(config)
    shell.load_state_dict({name: w.to("cpu", torch.bfloat16) for name, w in weights.items()}, assign=True)
    shell.to(torch.bfloat16).save_pretrained(folder)
