"""What a cache policy is: it stands between the loop and the network, and says which rows are computed."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from dimoo.canvas import Sequences


class CacheSession(Protocol):
    """The memory of one window of one generation."""

    def logits(self, denoiser: Any, sequences: Sequences, rows: Tensor, columns: slice, step: int) -> Tensor:
        """Logits (nB, M, K) of the answer positions `rows` (B, M) in every branch."""
        ...


class CachePolicy(Protocol):
    """Settings of a cache.

    It may state `attention`: the one kind of attention under which what it keeps is right. A cache that keeps keys for
    good, say, is right where attention is `block-causal`; a model whose attention is `full` then refuses it. Without
    the attribute a policy is for any model.
    """

    def open(self, steps: int) -> CacheSession:
        """A window of at most `steps` steps begins."""
        ...
