"""Guidance is the published arithmetic, in float32, over the branches that count."""

import pytest
import torch

from dimoo.guidance import (
    GUIDERS,
    GuidanceInterval,
    NestedGuidance,
    NoGuidance,
    TextGuidance,
    TextImageGuidance,
    active,
)
from dimoo.ops import combine


def logits(branches, dtype=torch.float32):
    return torch.randn(branches * 2, 3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)


def guided(guider, progress=0.5):
    given = logits(len(guider.branches))
    return combine(given, guider.weights(progress)), given.view(-1, 2, 3, 5)


def close(one, two):
    torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("w", [0.0, 1.0, 4.0])
def test_text_guidance_adds_the_difference(w):
    total, (cond, uncond) = guided(TextGuidance(w))
    close(total, cond + w * (cond - uncond))
    close(total, uncond + (1 + w) * (cond - uncond))  # the other convention


@pytest.mark.parametrize(("t", "i"), [(2.5, 4.0), (0.0, 1.0), (1.0, 0.0)])
def test_text_and_image_guidance_as_published(t, i):
    total, (cond, no_text, no_image) = guided(TextImageGuidance(t, i))
    close(total, cond + t * (cond - no_text) + i * (cond - no_image))


@pytest.mark.parametrize(("t", "i"), [(7.5, 1.5), (1.0, 1.0), (3.0, 0.0)])
def test_nested_guidance_is_equation_three(t, i):
    total, (cond, no_text, uncond) = guided(NestedGuidance(t, i))
    close(total, uncond + (1 + i) * (no_text - uncond) + (1 + t) * (cond - no_text))


def test_no_guidance_is_the_condition():
    total, (cond,) = guided(NoGuidance())
    assert torch.equal(total, cond)


@pytest.mark.parametrize("inner", [TextGuidance(3.0), TextImageGuidance(), NestedGuidance()])
def test_an_interval_guides_inside_and_not_outside(inner):
    interval = GuidanceInterval(inner, 0.25, 0.75)
    assert interval.branches == inner.branches
    for progress in (0.25, 0.5, 0.7499):
        assert interval.weights(progress) == inner.weights(progress)
    for progress in (0.0, 0.2499, 0.75, 0.99):
        total, (cond, *_) = guided(interval, progress)
        close(total, cond)
        assert active(interval.weights(progress)) == 1


def test_an_interval_of_everything_is_the_guider():
    interval = GuidanceInterval(TextGuidance(2.0))
    assert all(interval.weights(k / 10) == TextGuidance(2.0).weights(0) for k in range(10))


@pytest.mark.parametrize(
    ("weights", "count"), [((1.0,), 1), ((5.0, -4.0), 2), ((1.0, 0.0), 1), ((1.0, 0.0, 0.0), 1), ((2.0, 0.0, -1.0), 3)]
)
def test_branches_of_no_weight_at_the_end_are_not_computed(weights, count):
    assert active(weights) == count


def test_a_scale_of_zero_needs_no_second_branch():
    assert active(TextGuidance(0.0).weights(0)) == 1
    assert active(TextImageGuidance(1.0, 0.0).weights(0)) == 2
    assert active(NestedGuidance(2.0, 0.0).weights(0)) == 2
    assert active(NestedGuidance(0.0, 0.0).weights(0)) == 1


def test_branches_are_combined_in_float32():
    given = logits(2, torch.bfloat16)
    total = combine(given, (5.0, -4.0))
    assert total.dtype == torch.float32
    cond, uncond = given.float().chunk(2)
    close(total, 5 * cond - 4 * uncond)
    assert not torch.equal(total, (given[:2] * 5.0 - given[2:] * 4.0).float())


def test_a_number_of_weights_that_does_not_fit_is_an_error():
    with pytest.raises((ValueError, RuntimeError)):
        combine(logits(1)[:2], (1.0, 0.0, 0.0))


def test_every_guider_has_a_name():
    assert {TextGuidance, TextImageGuidance, NestedGuidance, NoGuidance, GuidanceInterval} == set(GUIDERS.values())
