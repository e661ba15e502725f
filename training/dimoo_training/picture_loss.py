"""What a reconstructed picture costs."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def picture_loss(made: Tensor, pixels: Tensor, filled: Tensor, object_weight: float) -> Tensor:
    """L1 weighted towards patches with a part of an object, `filled` (B, h, w), plus L1 of first differences."""
    weight = 1 + (object_weight - 1) * filled[:, None].float()
    weight = F.interpolate(weight, pixels.shape[-2:])
    plain = (weight * (made - pixels).abs()).mean()
    edges = sum((made.diff(dim=d) - pixels.diff(dim=d)).abs().mean() for d in (-1, -2))
    return plain + 0.5 * edges
