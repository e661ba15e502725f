"""Named ways to be fast. Each is a set of choices for the slots; `fast+interval` lays one over the other."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

from dimoo.cache import MaxLogitCache, NoCache, PromptReuse, SourceReuse, published
from dimoo.resolve import choices


@dataclass(frozen=True)
class Preset:
    """What a preset chooses; None leaves it.

    Args:
        cache: which rows are recomputed. reuse, drift: see `MaxLogitCache`.
        guidance_interval: (start, stop) progress between which guidance is on.
        early_finish: the probability from which on the rest is committed at once.
        graphs: CUDA graphs for narrow passes, on a GPU.
    """

    cache: MaxLogitCache | None = None
    reuse: SourceReuse | None = None
    drift: float | None = None
    guidance_interval: tuple[float, float] | None = None
    early_finish: float | None = None
    graphs: bool | None = None

    def policy(self) -> Any:
        """The cache policy."""
        if self.cache is None:
            return self.reuse or NoCache()
        return replace(self.cache, reuse=self.reuse, drift=self.drift, graphs=bool(self.graphs))


PRESETS: dict[str, Preset] = {
    "exact": Preset(),
    "published": Preset(cache=MaxLogitCache(ratio=0.9, warmup=0.3, refresh=5, select=published)),
    "balanced": Preset(cache=MaxLogitCache(ratio=0.9, warmup=0.1, refresh=5), reuse=SourceReuse(16)),
    "fast": Preset(cache=MaxLogitCache(ratio=0.92, warmup=0.05, refresh=12), reuse=SourceReuse(32)),
}
"""For people. `exact` computes everything; `published` is the released cache with its numbers and selection."""

POLICIES: dict[str, Preset] = {
    "interval": Preset(guidance_interval=(0.0, 0.75)),
    "source-reuse": Preset(reuse=SourceReuse(32)),
    "prompt-reuse": Preset(reuse=PromptReuse(32)),
    "adaptive": Preset(cache=MaxLogitCache(ratio=0.9, warmup=0.05, refresh=32), drift=1.0),
    "early-finish": Preset(early_finish=0.9),
    "graphs": Preset(graphs=True),
}
"""Single policies, to be measured alone or laid over a preset."""


def read_preset(name: str) -> Preset:
    """The preset called `name`, or several joined by +, the later over the earlier. Raises ValueError listing all."""
    known = PRESETS | POLICIES
    for part in name.split("+"):
        if part not in known:
            raise ValueError(f"preset has no {part!r}{choices(part, known)}, also joined by +")
    return reduce(over, (known[part] for part in name.split("+")))


def over(one: Preset, two: Preset) -> Preset:
    """`two` laid over `one`."""
    stated = {field.name: getattr(two, field.name) for field in fields(two)}
    return replace(one, **{name: value for name, value in stated.items() if value is not None})
