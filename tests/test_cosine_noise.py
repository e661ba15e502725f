"""How many positions of an example are hidden: what the sampler's own schedule leaves open."""

import numpy as np
import pytest

from dimoo_training.examples import cosine_noise


class Stub:
    """A generator that draws one number, and puts nothing in another order."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value

    def permutation(self, count):
        return np.arange(count)


@pytest.mark.parametrize(("u", "share"), [(0, 1), (1 / 3, 0.5 * 3**0.5), (0.5, 0.5**0.5), (2 / 3, 0.5), (1, 0)])
@pytest.mark.parametrize("count", [1, 2, 9, 64])
def test_cosine_noise_is_exact(count, u, share):
    noise = cosine_noise(count, Stub(u))
    assert len(noise) == count
    assert noise.sum() == max(1, int(count * share))


def test_cosine_noise_is_spread_as_the_schedule_and_over_all_places(rng):
    noise = np.stack([cosine_noise(64, rng) for _ in range(4000)])
    counts = noise.sum(1)
    assert counts.min() == 1 and counts.max() == 63
    for u in (0.25, 0.5, 0.75):             # the quantiles of cos(pi/2 u) are cos(pi/2 (1 - q))
        assert abs(np.quantile(counts, 1 - u) - 64 * np.cos(np.pi / 2 * u)) < 3
    assert abs(noise.mean(0) - noise.mean()).max() < 0.04
