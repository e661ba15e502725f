"""The checkpoint a run leaves: the hosted layout, ready to load."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from diffusers import VQModel

from dimoo.model.llada import LLaDAForMultiModalGeneration
from dimoo.pipeline import DiMOOPipeline
from dimoo.settings import Defaults
from dimoo.vocab import TOKEN_STRINGS, Vocab

DEFAULTS = Defaults(
    height=64, width=64, image_side=64, steps=64, guidance_scale=0.0, text_guidance_scale=0.0,
    image_guidance_scale=0.0, temperature=0.8, text_length=48, text_steps=16, block_length=48,
)  # fmt: skip
"""How a model of the small world is sampled unless the user says otherwise."""


def new_vocab(tokenizer, codebook_size: int) -> Vocab:
    """The vocabulary of a new model: the tokenizer's ids, then the image codes, last."""
    known = tokenizer.get_vocab()
    ids = {role: known[strings[0]] for role, strings in TOKEN_STRINGS.items()}
    offset = max(known.values()) + 1
    return Vocab(**ids, image_offset=offset, codebook_size=codebook_size, size=offset + codebook_size)


def assemble(model: LLaDAForMultiModalGeneration, tokenizer, vq: VQModel, folder: Path) -> None:
    """Write model (as bfloat16), text tokenizer, image tokenizer and sampling defaults; `model` stays as it is."""
    copied = LLaDAForMultiModalGeneration(model.config)
    copied.load_state_dict(model.state_dict())
    pipeline = DiMOOPipeline(copied.eval().to(torch.bfloat16), tokenizer, copy.deepcopy(vq))
    pipeline.set_defaults(DEFAULTS)
    pipeline.save_pretrained(folder)
