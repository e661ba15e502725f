"""Guiders: under which conditions the network is asked, and how the answers become one.

Each is a weighted sum of the logits of its branches (`ops.combine`); the weights sum to 1. Trailing branches
of weight 0 are not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Guider(Protocol):
    """`branches` name conditions of a sample, the full condition first."""

    branches: tuple[str, ...]

    def weights(self, progress: float) -> tuple[float, ...]:
        """One weight per branch at progress in [0, 1)."""
        ...


def active(weights: Sequence[float]) -> int:
    """How many leading branches have to be computed."""
    return max((i + 1 for i, weight in enumerate(weights) if weight != 0), default=1)


@dataclass(frozen=True)
class NoGuidance:
    """The condition alone."""

    branches = ("cond",)

    def weights(self, progress: float) -> tuple[float, ...]:
        return (1.0,)


@dataclass(frozen=True)
class TextGuidance:
    """Classifier-free guidance (Ho & Salimans 2022): (1 + scale) cond - scale uncond.

    The published scale 4 is 5 in the other convention, uncond + w (cond - uncond).
    """

    scale: float = 4.0
    branches = ("cond", "uncond")

    def weights(self, progress: float) -> tuple[float, ...]:
        return 1 + self.scale, -self.scale


@dataclass(frozen=True)
class TextImageGuidance:
    """Two scales for edits, as published: cond + text (cond - no_text) + image (cond - no_image)."""

    text_scale: float = 2.5
    image_scale: float = 4.0
    branches = ("cond", "no_text", "no_image")

    def weights(self, progress: float) -> tuple[float, ...]:
        return 1 + self.text_scale + self.image_scale, -self.text_scale, -self.image_scale


@dataclass(frozen=True)
class NestedGuidance:
    """Two nested scales (Brooks et al. 2023, eq. 3) in this module's convention, where 0 is off:
    uncond + (1 + image) (no_text - uncond) + (1 + text) (cond - no_text).

    Its last branch, text and image both dropped, is the one the released fine-tuning trains.
    """

    text_scale: float = 2.5
    image_scale: float = 0.5
    branches = ("cond", "no_text", "uncond")

    def weights(self, progress: float) -> tuple[float, ...]:
        return 1 + self.text_scale, self.image_scale - self.text_scale, -self.image_scale


@dataclass(frozen=True)
class GuidanceInterval:
    """Guide only while start <= progress < stop (Kynkäänniemi et al. 2024); outside, the condition alone."""

    guider: Guider
    start: float = 0.0
    stop: float = 1.0

    def __post_init__(self):
        if not 0 <= self.start < self.stop <= 1:
            raise ValueError(f"a guidance interval needs 0 <= start < stop <= 1, got {self.start} and {self.stop}")

    @property
    def branches(self) -> tuple[str, ...]:
        return self.guider.branches

    def weights(self, progress: float) -> tuple[float, ...]:
        if self.start <= progress < self.stop:
            return self.guider.weights(progress)
        return (1.0,) + (0.0,) * (len(self.branches) - 1)


GUIDERS = {
    "none": NoGuidance, "text": TextGuidance, "text+image": TextImageGuidance, "nested": NestedGuidance,
    "interval": GuidanceInterval,
}  # fmt: skip
