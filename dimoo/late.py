"""Reading flags of the device on the host without stalling it."""

from __future__ import annotations

import torch
from torch import Tensor


class Late:
    """Hands over the flags that it was given: at once when they lie on the host, one call later from a GPU.

    A GPU works behind the host; asking it for a number it has yet to compute would stop both. One call later the
    number is there. What is decided by it comes one step later then, never wrongly.
    """

    def __init__(self):
        self._pending: tuple[Tensor, torch.cuda.Event] | None = None

    def __call__(self, flags: Tensor | bool) -> Tensor | bool | None:
        """Flags on the host; None while there are none yet."""
        if not isinstance(flags, Tensor) or not flags.is_cuda:
            return flags
        copied, event = to_host(flags), torch.cuda.Event()
        event.record()
        before, self._pending = self._pending, (copied, event)
        if before is None:
            return None
        before[1].synchronize()
        return before[0]


def to_host(flags: Tensor) -> Tensor:
    """A copy under way, into pinned memory: one into pageable memory would be waited for."""
    return torch.empty_like(flags, device="cpu", pin_memory=True).copy_(flags, non_blocking=True)
