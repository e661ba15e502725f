"""The supervised loss, as a module: whatever wraps it (autocast, DDP, FSDP) sees one forward."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from dimoo.model.llada import LLaDAForMultiModalGeneration


class MaskedLoss(nn.Module):
    """Weighted masked cross-entropy; logits are computed for masked positions only.

    Lumina-DiMOO's loss (no 1/t) with weights per position. Its released code takes the plain mean.
    """

    def __init__(self, model: LLaDAForMultiModalGeneration):
        super().__init__()
        self.model = model

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """`batch` of `examples.collate` -> sum(w * ce) / sum(w), and the same of each example, (B,), detached."""
        hidden = self.model.hidden(batch["input_ids"], batch["key_mask"], None, None)   # (B, L, D)
        at = batch["weight"] > 0                                                        # (B, L)
        logits = self.model.logits(hidden[at])                                          # (n, V)
        weight = batch["weight"][at]
        losses = F.cross_entropy(logits.float(), batch["labels"][at], reduction="none") * weight
        each = losses.new_zeros(len(at)).index_add(0, at.nonzero()[:, 0], losses)
        return losses.sum() / weight.sum(), (each / batch["weight"].sum(1)).detach()
