"""Settings in brackets: `name(setting=value)` becomes an object, or a message that says what there is."""

import pytest
import torch

from dimoo.blocks import PowersOfTwo
from dimoo.canvas import Canvas, Row
from dimoo.resolve import build
from dimoo.sampling.rules import RULES, Threshold
from dimoo.settings import Defaults, Settings, listed


def test_settings_in_brackets():
    assert build("threshold(threshold=0.8, falling=0.02)", RULES, "rule") == Threshold(0.8, 0.02)
    assert build("threshold", RULES, "rule", threshold=0.7, other=1) == Threshold(0.7)
    assert build("threshold(threshold=0.8)", RULES, "rule", threshold=0.7) == Threshold(0.8)
    assert build(Threshold(0.5), RULES, "rule") == Threshold(0.5) and build(Threshold, RULES, "rule") == Threshold()
    assert build("even", {"even": len}, "quota") is len


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("threshold(threshold=0.8", "is not of the form name"),
        ("threshold(0.8)", "is not of the form name"),
        ("threshold(threshold=1+1)", "is not of the form name"),
        ("threshold(bar=1)", "rule 'threshold' has no setting 'bar'; there is: falling, threshold"),
        ("treshold(threshold=1)", "unknown rule 'treshold', did you mean 'threshold'?"),
        ("threshold(threshold=-1)", "threshold must be more than 0"),
    ],
)
def test_what_cannot_be_built(spec, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(").replace("?", r"\?")):
        build(spec, RULES, "rule")


def test_several_are_split_at_commas_outside_of_brackets():
    assert listed("credit(weight=1, keep=3), b") == ["credit(weight=1, keep=3)", "b"]
    assert listed(None) == [] and listed(["a"]) == ["a"] and listed(len) == [len]


REFUSED = {
    "threshold must be more than 0": {"rule": "threshold(threshold=0)"},
    r"the editing threshold must lie in \[0, 1\)": {"editing": "confident(threshold=1.5)"},
    "unroll must be a whole number of at least 1, got 0": {"unroll": 0},
    "unknown cache 'exact-prefix'.*there is: dual, max-logit, none, prefix, prompt-reuse, source-reuse, vicinity": {
        "cache": "exact-prefix"
    },
    "has no 'adaptive'": {"rule": object()},
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_settings_that_cannot_be(words):
    with pytest.raises(ValueError, match=words):
        settings = Settings(**REFUSED[words]).filled(Defaults(), "text")
        settings.scheduler(), settings.cache_policy()


def test_doubling_windows_take_a_logarithm_of_steps(vocab):
    def windows(*lengths, **given):
        rows = [Row(torch.full((length,), vocab.mask), {}, vocab.everything) for length in lengths]
        return list(PowersOfTwo(**given).windows(Canvas(rows, vocab, [(0, k) for k in range(len(rows))])))

    assert [window.counts for window in windows(128, first=1)] == [[1], [2], [4], [8], [16], [32], [65]]
    made = windows(128, 20, first=3)
    assert [window.counts for window in made] == [[7, 7], [8, 13], [16, 0], [32, 0], [65, 0]]
    assert [window.counts for window in windows(20, first=3)] == [[7], [13]]
    assert [window.steps[0] for window in made] == [3, 1, 1, 1, 1]
    assert [window.counts for window in windows(128, steps=4, first=3)] == [[7], [121]]
