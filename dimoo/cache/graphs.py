"""CUDA graphs for narrow passes: their shapes never change, so the kernels are recorded once and then replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dimoo.cache.store import KVStore

Pass = Callable[[], Tensor]


def available(device: torch.device) -> bool:
    return device.type == "cuda"


def record(function: Pass) -> tuple[Tensor, Callable[[], None]]:
    """Record a function whose tensors stay where they are; its output, and what computes it again.

    It is run twice before, on a stream of its own: libraries and kernels set themselves up then, which no recording
    may hold. Nothing random may happen in it.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function()
    return out, graph.replay


@dataclass(frozen=True)
class Recording:
    """A recorded pass. `function` holds on to all that the graph reads by its address."""

    ids: Tensor
    rows: Tensor
    function: Pass
    out: Tensor
    replay: Callable[[], None]

    @classmethod
    def of(cls, denoiser, ids: Tensor, rows: Tensor, kv: KVStore, given: dict[str, Any]) -> Recording:
        ids, rows = ids.clone(), rows.clone()

        def function() -> Tensor:
            return denoiser(ids, kv=kv, rows=rows, **given).logits

        return cls(ids, rows, function, *record(function))

    def __call__(self, ids: Tensor, rows: Tensor) -> Tensor:
        self.ids.copy_(ids)
        self.rows.copy_(rows)
        self.replay()
        return self.out


class GraphedPasses:
    """Calls a denoiser like itself, but records a partial pass when it comes the second time, and replays it then.

    A pass is known by its shapes and by where its keys lie; a selection whose count varies is rarely recorded. The
    logits that it returns are overwritten by the next replay, so they are to be read at once, as a session does.
    Belongs to one session, as the memory does. The whole model has to lie on the device.
    """

    def __init__(self, denoiser):
        self.denoiser = denoiser
        self.known: dict[Any, Recording | None] = {}

    def narrow(self, ids: Tensor, rows: Tensor, kv: KVStore, given: dict[str, Any]) -> Tensor:
        """Logits (n, R, K) of `rows` (n, R)."""
        key = ids.shape, rows.shape, kv.keys[0].data_ptr()
        if key not in self.known:
            self.known[key] = None
            return self.denoiser(ids, kv=kv, rows=rows, **given).logits
        if self.known[key] is None:
            self.known[key] = Recording.of(self.denoiser, ids, rows, kv, given)
        return self.known[key](ids, rows)
