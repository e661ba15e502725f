"""Log-probabilities of moves under a network, as one module: whatever wraps it (DDP, FSDP) sees one forward."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dimoo_training.objective import MaskedLoss
from dimoo_training.rl.moves import Moves


def log_probabilities(network: nn.Module, moves: Moves) -> Tensor:
    """(Q, U) float32, 0 where a move has no token: the sampler's own softmax, read from the stored states."""
    ids, mask, where = (x.transpose(0, 1).flatten(0, 1) for x in (moves.ids, moves.key_mask, moves.where))
    mask = None if bool(mask.all()) else mask
    logits = network(ids, key_mask=mask, logit_rows=where, columns=moves.columns).logits.float()     # (nQ, U, K)
    branches = logits.unflatten(0, (moves.ids.shape[1], len(moves)))                                 # (n, Q, U, K)
    log_p = moves.sampler.log_softmax((branches * moves.weights.T[:, :, None, None]).sum(0))
    chosen = (moves.chosen - moves.columns.start).clamp(0, log_p.shape[-1] - 1)
    return log_p.gather(-1, chosen[..., None])[..., 0].masked_fill(~moves.valid, 0.0)


class Learner(nn.Module):
    """The policy as everything trains it: moves give log-probabilities, supervised batches their loss."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network, self.supervised = network, MaskedLoss(network)

    def forward(self, given: Moves | dict[str, Tensor]) -> Tensor:
        if isinstance(given, Moves):
            return log_probabilities(self.network, given)
        return self.supervised(given)[0]


@torch.no_grad()
def frozen_log_probabilities(network: nn.Module, moves: Moves, size: int) -> Tensor:
    """The same without gradients, in micro-batches."""
    if not len(moves):
        return torch.zeros(moves.valid.shape, device=moves.valid.device)
    return torch.cat([log_probabilities(network, part) for part in moves.split(size)])
