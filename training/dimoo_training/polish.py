"""The last part of an image tokenizer's training: the decoder alone, on codes that no longer change.

Everything trained on the codes stays valid, so a decoder can also be polished after the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from diffusers import VQModel
from torch import Tensor

from dimoo_training.codebook import nearest
from dimoo_training.optimiser import Optimiser, warmup_then_decay
from dimoo_training.picture_loss import picture_loss
from dimoo_training.recipes import VQRecipe

MANY_MAPS = 0.4
"""Share of maps here: their thin lines are what a decoder gets right last."""
SHARE = 0.4
"""Of the rates of the main run: there is less left to move."""


def polish(
    model: VQModel, pairs: Callable[[int], tuple[Tensor, Tensor, Tensor]], recipe: VQRecipe, log=print
) -> VQModel:
    """Train decoder and `post_quant_conv` for a share `recipe.polish` of the minutes; encoder and codebook stay.

    Args:
        pairs: count -> pixels, meaning, shared, as `patchwork.pairs`.
    """
    if not recipe.polish:
        return model
    model.requires_grad_(False)
    for part in (model.decoder, model.post_quant_conv):
        part.requires_grad_(True)
    optimiser = Optimiser(model, SHARE * recipe.lr, SHARE * recipe.adam_lr, apart=("conv_out",))
    codebook, began, step = model.quantize.embedding.weight, time.time(), 0
    while (progress := (time.time() - began) / (60 * recipe.minutes * recipe.polish)) < 1:
        pixels, meaning, _ = pairs(recipe.batch // 2)
        with torch.no_grad():
            codes = nearest(model.encode(pixels).latents.permute(0, 2, 3, 1), codebook)
        made = model.decode(codebook[codes].permute(0, 3, 1, 2), force_not_quantize=True).sample
        loss = picture_loss(made, pixels, meaning > 0, recipe.object_weight)
        loss.backward()
        optimiser.step(warmup_then_decay(progress, decay=0.9))
        step += 1
        if step % 50 == 0:
            log(f"polish {step:5d}  {progress:4.0%}  loss {loss.item():.4f}")
    return model.requires_grad_(True).eval()
