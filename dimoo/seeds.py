"""From what users give (a seed, generators, nothing) to one (seed, index) per sample."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch

Start = tuple[int, int]
"""(seed, index): the key of a sample's random stream."""

LARGEST = 2**53
"""Seeds drawn for the user stay exact in JSON."""


def seeds_for(
    count: int,
    seed: int | Sequence[Start] | None = None,
    index: int = 0,
    generator: torch.Generator | list[torch.Generator] | None = None,
) -> list[Start]:
    """One (seed, index) per sample: the key of its random stream.

    A seed (0 is one) or a single generator numbers the samples index, index+1, ...; a list of (seed, index) or of
    generators gives each sample its own. Without either a seed is drawn, to be reported back.

    Raises:
        ValueError: both were given, or the list has the wrong length.
    """
    if seed is not None and generator is not None:
        raise ValueError("give a seed or a generator, not both")
    if isinstance(seed, Sequence):
        if len(seed) != count:
            raise ValueError(f"{count} samples need {count} (seed, index), got {len(seed)}")
        return [(int(one), int(number)) for one, number in seed]
    if isinstance(generator, list):
        if len(generator) != count:
            raise ValueError(f"{count} samples need {count} generators, got {len(generator)}")
        return [(_draw(g), 0) for g in generator]
    if generator is not None:
        seed = _draw(generator)
    if seed is None:
        seed = secrets.randbelow(LARGEST)
    return [(int(seed), index + k) for k in range(count)]


def _draw(generator: torch.Generator) -> int:
    return int(torch.randint(LARGEST, (1,), generator=generator, device=generator.device))
