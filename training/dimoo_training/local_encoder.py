"""An encoder in the diffusers `VQModel` format that sees each patch alone."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from diffusers import VQModel
from torch import Tensor, nn


class LocalEncoder:
    """Makes the encoder a small network per patch of 8x8 pixels, inside the format's architecture.

    The format's 3x3 kernels and its normalisation over the whole picture would let the code of a shape depend on what
    stands next to it (measured: the commonest code of an object's quarter then covers 43% of its appearances). So
    kernels keep only the taps inside the patch: the centre, and the first two of the strided ones. And two channels
    of every feature map are constants, +a and -a, which nobody reads and which outweigh the rest in the
    normalisation: it becomes nearly the same for every picture.
    """

    ANCHORS = 2
    OUTWEIGH = 3.0

    def __init__(self, model: VQModel):
        self.fixed: list[tuple[nn.Conv2d, Tensor, Tensor | None]] = []
        for name, conv in model.encoder.named_modules():
            if isinstance(conv, nn.Conv2d):
                mask = torch.ones_like(conv.weight) * self.taps(conv)
                with torch.no_grad():
                    # Nothing else keeps the scale: variance 1 / (taps in use), where torch has 1 / (3 x all taps).
                    conv.weight.mul_((3 * mask[0, 0].numel() / mask[0, 0].sum()) ** 0.5)
                mask[:, : self.ANCHORS if name != "conv_in" else 0] = 0                 # nobody reads the anchors
                anchors = None if name == "conv_out" else self.anchors(name, conv)
                if anchors is not None:
                    mask[: self.ANCHORS] = 0
                self.fixed.append((conv, mask, anchors))
                if conv.kernel_size == (3, 3):
                    conv.forward = partial(self.fast, conv)
            elif isinstance(conv, nn.GroupNorm):
                nn.init.constant_(conv.weight, self.OUTWEIGH)
        self.apply()

    @staticmethod
    def taps(conv: nn.Conv2d) -> Tensor:
        if conv.kernel_size == (1, 1):
            return torch.ones(1, 1)
        mask = torch.zeros(3, 3)
        if conv.stride == (2, 2):
            mask[:2, :2] = 1
        else:
            mask[1, 1] = 1
        return mask

    def anchors(self, name: str, conv: nn.Conv2d) -> Tensor:
        """The biases of the constant channels: none where a residual is added to a map that has them."""
        size = self.OUTWEIGH * (conv.out_channels / self.ANCHORS) ** 0.5
        return torch.tensor([0.0, 0.0] if name.endswith("conv2") else [size, -size])

    @staticmethod
    def fast(conv: nn.Conv2d, x: Tensor) -> Tensor:
        """The same as the module's own forward, without multiplying by taps that are zero."""
        if conv.stride == (2, 2):
            return F.conv2d(x[:, :, :-1, :-1], conv.weight[:, :, :2, :2], conv.bias, 2)
        return F.conv2d(x, conv.weight[:, :, 1:2, 1:2], conv.bias)

    @torch.no_grad()
    def apply(self) -> None:
        for conv, mask, anchors in self.fixed:
            conv.weight.mul_(mask)
            if anchors is not None:
                conv.bias[: self.ANCHORS] = anchors
