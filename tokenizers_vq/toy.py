"""A tokenizer without weights: one code per patch, its mean colour on a coarse palette. For tests and examples."""

from __future__ import annotations

import torch
from torch import Tensor

from tokenizers_vq.base import check_codes, check_pixels


class ToyImageTokenizer:
    """Each ratio x ratio patch becomes the nearest of levels**3 colours; exact on pictures it decoded itself."""

    def __init__(self, ratio: int = 8, levels: int = 4):
        self.ratio, self.levels = ratio, levels
        self.codebook_size = levels**3

    def encode(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, H/ratio, W/ratio) int64."""
        check_pixels(pixels, self.ratio)
        means = torch.nn.functional.avg_pool2d(pixels.float(), self.ratio)                 # (B, 3, h, w)
        red, green, blue = (means * (self.levels - 1)).round().long().unbind(1)
        return (red * self.levels + green) * self.levels + blue

    def decode(self, codes: Tensor) -> Tensor:
        """(B, h, w) int64 -> (B, 3, h*ratio, w*ratio) float32 in [0, 1]."""
        check_codes(codes, self.codebook_size)
        channels = [codes // self.levels**2, codes // self.levels % self.levels, codes % self.levels]
        colours = torch.stack(channels, dim=1).float() / (self.levels - 1)                 # (B, 3, h, w)
        return colours.repeat_interleave(self.ratio, -1).repeat_interleave(self.ratio, -2)
