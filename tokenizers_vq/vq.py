"""The `diffusers.VQModel` as an image tokenizer: the hosted checkpoint's and dimoo-tiny's alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tokenizers_vq.base import check_codes, check_pixels

if TYPE_CHECKING:  # training on ready-made codes runs without diffusers
    from diffusers import VQModel


class VQImageTokenizer:
    """Wraps a VQModel without changing it.

    Pixels are in [0, 1] (the hosted model was trained without the usual [-1, 1] scaling) and leave clipped to it.
    Codes are the nearest codebook rows; decoding looks the rows up and skips the quantiser
    (`force_not_quantize`), so codes -> pixels never moves a code.
    """

    def __init__(self, model: VQModel):
        self.model = model
        self.ratio = 2 ** (len(model.config.block_out_channels) - 1)
        self.codebook_size = model.config.num_vq_embeddings

    @property
    def device(self) -> torch.device:
        """Where the model computes; an offloaded model lies elsewhere between calls."""
        hook = getattr(self.model, "_hf_hook", None)
        return torch.device(getattr(hook, "execution_device", None) or self.model.device)

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, H/ratio, W/ratio) int64."""
        check_pixels(pixels, self.ratio)
        latents = self.model.encode(pixels.to(self.device, self.model.dtype)).latents         # (B, e, h, w)
        batch, _, height, width = latents.shape
        indices = self.model.quantize(latents)[2][2]
        return indices.view(batch, height, width)

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """(B, h, w) int64 -> (B, 3, h*ratio, w*ratio) float32 in [0, 1]."""
        check_codes(codes, self.codebook_size)
        table = self.model.quantize.embedding.weight
        rows = table[codes.to(table.device)].to(self.device).permute(0, 3, 1, 2)              # (B, e, h, w)
        pixels = self.model.decode(rows.contiguous(), force_not_quantize=True).sample
        return pixels.float().clamp(0, 1)
