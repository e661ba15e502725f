"""Which variants of different slots go together: one table, looked at before anything is computed.

A slot checks its own values; what only two slots can contradict stands here. Where a pair does not fit, the message
names both and lists what would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Chosen:
    """What was chosen, as objects; None: not chosen, or not known here.

    quota: only if it was asked for; `schedule` is the one in effect. tries: of a search. attention: the model's,
    `full` where every position sees every other.
    """

    rule: Any = None
    quota: Any = None
    schedule: Any = None
    remask: Any = None
    edit: Any = None
    reject: Any = None
    cache: Any = None
    tries: int | None = None
    attention: str | None = None


@dataclass(frozen=True)
class Combination:
    """Two fields of `Chosen` that cannot be together where `clash` of their values holds.

    because: a sentence with {one} and {other}. allowed: what would do, as words -> names of variants.
    """

    one: str
    other: str
    clash: Callable[[Any, Any], bool]
    because: str
    allowed: Callable[[], Mapping[str, Iterable[str]]]

    def check(self, chosen: Chosen) -> None:
        one, other = getattr(chosen, self.one), getattr(chosen, self.other)
        if one is None or other is None or not self.clash(one, other):
            return
        reason = self.because.format(one=named(one), other=named(other))
        allowed = "; ".join(f"{words}: {', '.join(fitting)}" for words, fitting in self.allowed().items())
        raise ValueError(f"{reason}; allowed: {allowed}")


def refuse(**chosen: Any) -> None:
    """Raises ValueError for the first contradiction among fields of `Chosen`, with what is allowed instead."""
    given = Chosen(**chosen)
    for combination in COMBINATIONS:
        combination.check(given)


def adaptive(rule: Any) -> bool:
    """Whether only the model's certainty says how many tokens a step writes."""
    return rule.adaptive


def narrow(cache: Any) -> bool:
    """Whether steps between refreshes have logits of the open window only."""
    return hasattr(getattr(cache, "cache", cache), "stretch")                   # smoothing wraps a cache


def needs(cache: Any) -> str | None:
    """The only attention under which a cache is right; None: any."""
    return getattr(getattr(cache, "cache", cache), "attention", None)


def ascends(reject: Any) -> bool:
    return getattr(reject, "ramp", None) == "doubling"


def of(slot: str, fits: Callable[[Any], bool]) -> list[str]:
    """Names of a slot's variants that fit."""
    return [name for name, variant in tables()[slot].items() if fits(variant)]


def tables() -> Mapping[str, Mapping[str, Any]]:
    """Slot -> its variants. Looked up late: the slots import this module."""
    from dimoo.cache import CACHES
    from dimoo.sampling import EDITINGS, QUOTAS, REJECTIONS, REMASKINGS, RULES

    return {"rule": RULES, "quota": QUOTAS, "remask": REMASKINGS, "editing": EDITINGS, "reject": REJECTIONS,
            "cache": CACHES}  # fmt: skip


def named(choice: Any) -> str:
    """The key of a variant in its table, else the name of its class or function."""
    if isinstance(choice, str | int):
        return str(choice)
    kind = choice if hasattr(choice, "__name__") else type(choice)
    known = {variant: name for table in tables().values() for name, variant in table.items()}
    return known.get(kind, kind.__name__)


COMBINATIONS = (
    Combination(
        "rule", "quota", lambda rule, quota: not rule.uses_quota,
        "rule {one} decides itself how many tokens it writes, so quota {other} has no meaning",
        lambda: {"rule": of("rule", lambda rule: rule.uses_quota)},
    ),
    Combination(
        "remask", "rule", lambda remask, rule: remask.scheduled and adaptive(rule),
        "remasking {one} needs steps that are known in advance, and rule {other} decides itself how many it takes",
        lambda: {"rule": of("rule", lambda rule: not adaptive(rule)),
                 "remasking": of("remask", lambda remask: not remask.scheduled)},
    ),
    Combination(
        "reject", "schedule", lambda reject, quota: ascends(reject) and quota in tables()["quota"].values()
        and quota is not tables()["quota"]["powers-of-two"],
        "early rejection {one} with ramp=doubling follows doubling steps, and the quota is {other}",
        lambda: {"quota": ["powers-of-two"], "ramp": ["step", "share"]},
    ),
    Combination(
        "edit", "cache", lambda edit, cache: getattr(edit, "reach", "") == "answer" and narrow(cache),
        "editing with reach=answer looks at the whole answer, and cache {other} computes the open window only",
        lambda: {"cache": of("cache", lambda cache: not narrow(cache)), "reach": ["window"]},
    ),
    Combination(
        "tries", "rule", lambda tries, rule: adaptive(rule),
        "best_of={one} compares drawings at planned steps, and rule {other} decides itself how many tokens it takes",
        lambda: {"rule": of("rule", lambda rule: not adaptive(rule))},
    ),
    Combination(
        "attention", "cache", lambda attention, cache: needs(cache) not in (None, attention),
        "cache {other} is right under another attention than {one}, which this model has",
        lambda: {"cache": of("cache", lambda cache: needs(cache) is None)},
    ),
)  # fmt: skip
