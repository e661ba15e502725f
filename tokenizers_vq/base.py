"""What an image tokenizer is: pixels to a grid of codes and back."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class ImageTokenizer(Protocol):
    """Pixels (B, 3, H, W) float in [0, 1] <-> codes (B, H/ratio, W/ratio) int64 in [0, codebook_size)."""

    ratio: int
    """Pixels per code along one side."""
    codebook_size: int

    def encode(self, pixels: Tensor) -> Tensor: ...

    def decode(self, codes: Tensor) -> Tensor: ...


def check_pixels(pixels: Tensor, ratio: int) -> None:
    """Raise ValueError unless pixels are (B, 3, H, W) with both sides a multiple of `ratio`."""
    if pixels.dim() != 4 or pixels.shape[1] != 3:
        raise ValueError(f"pixels must have shape (B, 3, H, W), got {tuple(pixels.shape)}")
    height, width = pixels.shape[-2:]
    if height % ratio or width % ratio or not height or not width:
        raise ValueError(f"height and width must be multiples of {ratio}, got {height}x{width}")


def check_codes(codes: Tensor, codebook_size: int) -> None:
    """Raise ValueError unless codes are (B, h, w) within the codebook."""
    if codes.dim() != 3:
        raise ValueError(f"codes must have shape (B, h, w), got {tuple(codes.shape)}")
    if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) < codebook_size:
        raise ValueError(
            f"codes must lie in [0, {codebook_size}), got values from {int(codes.min())} to {int(codes.max())}"
        )
