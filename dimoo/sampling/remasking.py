"""Remasking: which written positions are put back to mask, so that they are decided again with more around them.

Every position put back is paid for by one more commit in the same step, so the number of masks after a step is the
one that was planned, and a generation always ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dimoo.sampling.quotas import Quota
from dimoo.sampling.rules import within


@dataclass
class Written:
    """What stands on the canvas before a step's commits. B rows, T positions.

    here: (B, T) bool, True where the generation wrote a token in the open window.
    then: (B, T) probability each token was written with. now: (B, T) its probability now, or None if not asked for.
    before, after: (B, 1) share of the window that is written before and after this step.
    uniform: (B, T) random numbers in (0, 1).
    """

    here: Tensor
    then: Tensor
    now: Tensor | None
    before: Tensor
    after: Tensor
    uniform: Tensor

    @property
    def most(self) -> Tensor:
        """(B, 1) largest probability of remasking that keeps the marginals: min(1, (1 - alpha_s) / alpha_t)."""
        return ((1 - self.after) / self.before.clamp_min(1e-9)).clamp(0, 1)


class Remasking(Protocol):
    """`looks`: whether it needs the model's opinion of what is written (more rows of logits).
    `scheduled`: whether it needs steps known in advance, hence a rule that follows a quota."""

    looks: bool
    scheduled: bool

    def quota(self, given: Quota) -> Quota:
        """The mask schedule under which it works."""
        return given

    def __call__(self, written: Written) -> Tensor:
        """(B, T) bool: what is put back."""
        ...


@dataclass(frozen=True)
class ReMDM(Remasking):
    """ReMDM (Wang et al. 2025): each written token is put back with probability sigma, whatever the model thinks.

    Any sigma up to `Written.most` keeps the marginals of the process, hence it works with every masked model.
    Unlike the released code written tokens are never resampled in place: this model does not copy what it sees.
    """

    eta: float
    looks = False
    scheduled = True

    def __post_init__(self):
        within("eta", self.eta)

    def sigma(self, written: Written) -> Tensor:
        raise NotImplementedError

    def __call__(self, written: Written) -> Tensor:
        return written.here & (written.uniform < self.sigma(written))


@dataclass(frozen=True)
class Cap(ReMDM):
    """sigma = min(eta, the most)."""

    eta: float = 0.008

    def sigma(self, written: Written) -> Tensor:
        return written.most.clamp_max(self.eta)


@dataclass(frozen=True)
class Rescale(ReMDM):
    """sigma = eta times the most."""

    eta: float = 0.015

    def sigma(self, written: Written) -> Tensor:
        return self.eta * written.most


@dataclass(frozen=True)
class Confidence(ReMDM):
    """The less sure a token was when written, the likelier it goes: sigma_i = eta the most softmax(-p)_i over the
    written tokens, where p are the probabilities they were written with. About `eta` tokens go back in a step."""

    eta: float = 1.0

    def sigma(self, written: Written) -> Tensor:
        weight = (-written.then).masked_fill(~written.here, -torch.inf).softmax(1).nan_to_num(0.0)
        return self.eta * written.most * weight


@dataclass(frozen=True)
class Loop(ReMDM):
    """Fill up to a share `on`, stay there putting back and filling again with sigma = eta, then finish.

    Args:
        on: share written when the loop begins. start, stop: progress between which it runs; published as
            t_on = 0.55 and t_off = 0.05, counted from the end.
    """

    eta: float = 0.02
    on: float = 0.9
    start: float = 0.45
    stop: float = 0.95

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.on < 1 or not 0 < self.start < self.stop < 1:
            raise ValueError(
                f"the loop needs 0 < on < 1 and 0 < start < stop < 1, got {self.on}, {self.start} and {self.stop}"
            )

    def quota(self, given: Quota) -> Quota:
        def looped(masks: int, steps: int) -> list[int]:
            done = [round(masks * self.share((step + 1) / steps)) for step in range(steps)]
            return [after - before for before, after in zip([0, *done], done, strict=False)]

        return looped

    def share(self, progress: float) -> float:
        """Written share at a progress in [0, 1]."""
        if progress <= self.start:
            return self.on * progress / self.start
        return self.on + (1 - self.on) * max(0.0, progress - self.stop) / (1 - self.stop)

    def sigma(self, written: Written) -> Tensor:
        held = written.before == written.after                                  # only while the share stands still
        return written.most.clamp_max(self.eta) * held


@dataclass(frozen=True)
class LowConfidence(Remasking):
    """Written tokens the model now gives less than `threshold` go back (dInfer's remasking variant: 0.4).

    Asks the model about positions it sees, which plain masked models are not trained for; measure before use.
    """

    threshold: float = 0.4
    looks = True
    scheduled = False

    def __post_init__(self):
        within("threshold", self.threshold)

    def __call__(self, written: Written) -> Tensor:
        return written.here & (written.now < self.threshold)


REMASKINGS: dict[str, type] = {
    "remdm-cap": Cap, "remdm-rescale": Rescale, "remdm-confidence": Confidence, "remdm-loop": Loop,
    "low-confidence": LowConfidence,
}  # fmt: skip
