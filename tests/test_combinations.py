"""Slots that contradict each other are refused by the one table, with what would do; and what would do is taken."""

from dataclasses import dataclass

import pytest

from dimoo.cache import CACHES, DualCache, NoCache
from dimoo.combinations import COMBINATIONS, refuse
from dimoo.sampling import Scheduler, Smoothing, TokenEditing
from dimoo.sampling.quotas import even, powers_of_two
from dimoo.settings import Defaults, Settings


@dataclass(frozen=True)
class ExactPrefix(NoCache):
    """Keeps the keys of finished blocks for good."""

    attention = "block-causal"


# (fields, words of the message, the same made fit)
CONTRADICTIONS = {
    ("rule", "quota"): (
        {"rule": "threshold", "quota": "even"},
        "rule threshold decides itself how many .* quota even .* allowed: rule: quota, random, threshold-or-quota",
        {"rule": "random"},
    ),
    ("remask", "rule"): (
        {"rule": "factor", "remask": "remdm-cap"},
        "remasking remdm-cap needs steps .* rule factor .* allowed: rule: quota, random; remasking: low-confidence",
        {"remask": "low-confidence"},
    ),
    ("reject", "schedule"): (
        {"reject": "eoser(ramp=doubling)", "quota": "even"},
        "early rejection eoser with ramp=doubling .* quota is even; allowed: quota: powers-of-two; ramp: step, share",
        {"quota": "powers-of-two"},
    ),
    ("edit", "cache"): (
        {"editing": "confident(reach=answer)", "cache": "dual"},
        "cache dual computes the open window only; allowed: cache: none, max-logit, .*; reach: window",
        {"cache": "max-logit"},
    ),
    ("tries", "rule"): (
        {"best_of": 4, "rule": "threshold"},
        "best_of=4 compares .* rule threshold .* allowed: rule: quota, random",
        {"rule": "random"},
    ),
}


@pytest.mark.parametrize("pair", CONTRADICTIONS)
def test_a_contradiction_is_refused_and_the_way_out_is_open(pair):
    fields, words, instead = CONTRADICTIONS[pair]

    def slots(given):
        settings = Settings(**given).filled(Defaults(), "text")
        return settings.scheduler(), settings.cache_policy()

    with pytest.raises(ValueError, match=words):
        slots(fields)
    slots(fields | instead)


def test_a_cache_that_needs_another_attention_is_refused_before_anything_is_computed(tiny):
    called = []
    tiny.model.register_forward_hook(lambda *given: called.append(1))
    for cache in (ExactPrefix(), Smoothing(ExactPrefix())):
        with pytest.raises(ValueError, match=r"cache .* another attention than full.*allowed: cache: .*dual, vicinity"):
            tiny.write("what is it?", cache=cache)
    assert not called
    for cache in CACHES.values():
        refuse(attention=tiny.model.attention_kind, cache=cache())


def test_every_pair_of_the_table_is_tried_here():
    assert {(each.one, each.other) for each in COMBINATIONS} == {*CONTRADICTIONS, ("attention", "cache")}


def test_smoothing_does_not_hide_what_it_wraps_and_parts_of_ones_own_are_not_judged():
    with pytest.raises(ValueError, match="editing with reach=answer"):
        refuse(edit=TokenEditing(reach="answer"), cache=Smoothing(DualCache()))
    ascending = Settings(reject="eoser(ramp=doubling)", quota="powers-of-two").filled(Defaults(), "text")
    for quota in (powers_of_two, lambda masks, steps: even(masks, steps)):
        Scheduler(quota=quota, reject=ascending.scheduler().reject)
