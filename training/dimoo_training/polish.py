"""The last part of an image tokenizer's training: the decoder alone, on codes that no longer change.

Everything trained on the codes stays valid, so a decoder can also be polished after the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from diffusers import VQModel

from dimoo_training.codebook import nearest
from dimoo_training.optimiser import Optimiser, warmup_then_decay
from dimoo_training.patchwork import pairs
from dimoo_training.picture_loss import picture_loss
from dimoo_training.world import World


def polish(
    model: VQModel, world: World, minutes: float, rng: np.random.Generator, batch: int = 16, lr: float = 6e-3,
    object_weight: float = 4.0, log: Callable[[str], None] = print,
) -> VQModel:  # fmt: skip
    """Train decoder and `post_quant_conv` for some minutes of wall time; encoder and codebook stay as they are."""
    model.requires_grad_(False)
    for part in (model.decoder, model.post_quant_conv):
        part.requires_grad_(True)
    optimiser, codebook = Optimiser(model, lr, lr / 4, apart=("conv_out",)), model.quantize.embedding.weight
    began, step = time.time(), 0
    while (progress := (time.time() - began) / (60 * minutes)) < 1:
        pixels, meaning, _ = pairs(world, batch // 2, rng)
        with torch.no_grad():
            codes = nearest(model.encode(pixels).latents.permute(0, 2, 3, 1), codebook)
        made = model.decode(codebook[codes].permute(0, 3, 1, 2), force_not_quantize=True).sample
        loss = picture_loss(made, pixels, meaning > 0, object_weight)
        loss.backward()
        optimiser.step(warmup_then_decay(progress, decay=0.9))
        step += 1
        if step % 50 == 0:
            log(f"polish {step:5d}  {progress:4.0%}  loss {loss.item():.4f}")
    return model.requires_grad_(True).eval()
