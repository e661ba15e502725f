"""Random numbers depend on seed, index, purpose, step and position, on nothing else, and are good ones."""

import math

import pytest
import torch

from dimoo.sampling import GumbelNoise, LowPrecisionNoise, RandomStream
from dimoo.seeds import LARGEST, seeds_for
from dimoo.stream import RANK, TOKEN

POSITIONS = torch.arange(2000)[None]
EULER = 0.5772156649


def draws(seed=(0, 0), purpose=TOKEN, step=0, positions=POSITIONS, count=50):
    return RandomStream([seed]).uniform(purpose, step, positions, count)


def correlation(one, two):
    return float(torch.corrcoef(torch.stack([one.flatten(), two.flatten()]))[0, 1])


@pytest.mark.parametrize("seed", [(0, 0), (1, 0), (2**63, 5), (-7, 2**40)])
def test_uniforms_are_uniform(seed):
    u = draws(seed)  # 100 000 numbers: a standard error of 0.0009 for the mean
    assert u.dtype == torch.float32 and u.min() > 0 and u.max() < 1
    assert abs(float(u.mean()) - 1 / 2) < 0.004
    assert abs(float(u.var()) - 1 / 12) < 0.002
    counts = torch.histc(u, 64, 0, 1)
    assert float(((counts - u.numel() / 64) ** 2 / (u.numel() / 64)).sum()) < 120  # chi^2 of 63 degrees: 63 +- 11


def test_gumbels_are_gumbels():
    g = GumbelNoise().token(RandomStream([(0, 0)]), 0, POSITIONS, 50)
    assert abs(float(g.mean()) - EULER) < 0.015
    assert abs(float(g.var()) - math.pi**2 / 6) < 0.04
    for x in (-1.0, 0.0, 1.0, 3.0):
        assert abs(float((g < x).float().mean()) - math.exp(-math.exp(-x))) < 0.006


def test_the_largest_of_logits_and_gumbels_is_a_draw():
    p = torch.tensor([0.6, 0.25, 0.1, 0.05])
    noise = GumbelNoise().token(RandomStream([(9, 0)]), 3, torch.arange(20_000)[None], 4)[0]
    drawn = torch.bincount((p.log() + noise).argmax(-1), minlength=4) / 20_000
    assert (drawn - p).abs().max() < 0.012


OTHERS = {
    "another seed": {"seed": (1, 0)},
    "another index": {"seed": (0, 1)},
    "seed and index swapped": {"seed": (1, 1)},
    "the next step": {"step": 1},
    "another window": {"step": 2**20},
    "the rank's": {"purpose": RANK},
    "a third purpose's": {"purpose": 3},
    "the neighbours'": {"positions": POSITIONS + 1},
}


@pytest.mark.parametrize("name", OTHERS)
def test_streams_do_not_know_each_other(name):
    one, two = draws(), draws(**OTHERS[name])
    assert abs(correlation(one, two)) < 0.015  # 5 standard errors
    assert (one == two).float().mean() < 1e-3


def test_neighbouring_draws_are_independent():
    u = draws()[0]
    assert abs(correlation(u[:, :-1], u[:, 1:])) < 0.015
    assert abs(correlation(u[:-1], u[1:])) < 0.015
    assert abs(correlation(u[:-1, 0], u[1:, 0])) < 0.11


def test_nothing_collides():
    """Every (seed, index, purpose, step, position) has 4 numbers of its own: 96 bits."""
    rows = []
    for purpose in (TOKEN, RANK, 3):
        for step in (*range(40), 2**20, 2**20 + 1, 2**21):
            stream = RandomStream([(seed, index) for seed in (0, 1, 2, 2**40) for index in range(4)])
            rows.append(stream.uniform(purpose, step, torch.arange(30).expand(16, 30), 4).flatten(0, 1))
    rows = torch.cat(rows)
    assert len(rows.unique(dim=0)) == len(rows)


def test_a_stream_is_the_same_in_any_batch_and_order():
    seeds, positions = [(3, 1), (0, 0), (2**70, 2)], torch.tensor([[5, 0, 9], [1, 2, 3], [7, 7, 8]])
    batch = RandomStream(seeds).uniform(TOKEN, 11, positions, 6)
    for k, seed in enumerate(seeds):
        for m in range(3):
            alone = RandomStream([seed]).uniform(TOKEN, 11, positions[k : k + 1, m : m + 1], 6)
            assert torch.equal(batch[k, m], alone[0, 0])
    assert torch.equal(batch[2, 0], batch[2, 1])  # the same position


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
def test_a_stream_is_the_same_on_every_device():
    elsewhere = RandomStream([(0, 0)], "cuda").uniform(TOKEN, 0, POSITIONS.cuda(), 50)
    assert torch.equal(draws(), elsewhere.cpu())


def by_definition(seed, index, purpose, step, position, column):
    """The same number with Python's integers: what a picture's parameters mean, for good."""
    golden, wide = 0x9E3779B97F4A7C15, 2**64 - 1

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & wide
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & wide
        return x ^ (x >> 31)

    key = mix((mix(seed & wide) + golden * (index + 1)) & wide)
    key = mix((key + golden * (4 * step + purpose)) & wide)
    key = mix((key + golden * (position + 1)) & wide)
    return ((mix((key + golden * (column + 1)) & wide) >> 41) + 0.5) / 2**23


@pytest.mark.parametrize("seed", [(0, 0), (1, 2), (-3, 7), (2**63 + 5, 2**33)])
@pytest.mark.parametrize("step", [0, 3, 2**20 + 1])
def test_the_numbers_are_those_of_the_definition(seed, step):
    drawn = draws(seed, RANK, step, torch.tensor([[0, 5, 4000]]), 3)[0]
    for row, position in zip(drawn.tolist(), (0, 5, 4000), strict=True):
        assert row == [by_definition(*seed, RANK, step, position, column) for column in range(3)]


@pytest.mark.parametrize("bits", [-1, 0, 2**63 - 1, -(2**63)])
def test_not_even_the_rarest_bits_give_zero_one_or_infinity(bits, monkeypatch):
    monkeypatch.setattr("dimoo.stream.mix", lambda x: torch.full_like(x, bits))
    u = draws(count=1)
    assert 0 < float(u[0, 0, 0]) < 1
    assert GumbelNoise.gumbel(u).isfinite().all() and LowPrecisionNoise.gumbel(u).isfinite().all()


def test_low_precision_noise_is_bounded_and_coarse():
    g = LowPrecisionNoise().token(RandomStream([(0, 0)]), 0, POSITIONS, 50)
    assert g.dtype == torch.bfloat16
    assert abs(float(g.min()) + 3.83) < 0.01 and abs(float(g.max()) - 5.53) < 0.01
    grid = torch.arange(256) / 256
    allowed = -torch.log(-torch.log(grid.clamp_min(1e-20).to(torch.bfloat16)))
    values = g.unique()
    assert set(values.tolist()) <= set(allowed.tolist())
    assert len(values) > 150
    exact = GumbelNoise().token(RandomStream([(0, 0)]), 0, POSITIONS, 50)
    assert exact.min() < -2 and exact.max() > 8
    middle = (exact > -1) & (exact < 3)
    assert (g.float() - exact)[middle].abs().max() < 0.3  # the same draws, rounded


@pytest.mark.parametrize("seed", [0, 1, -1, 2**64])
def test_a_seed_numbers_the_samples(seed):
    assert seeds_for(3, seed) == [(seed, 0), (seed, 1), (seed, 2)]
    assert seeds_for(2, seed, index=7) == [(seed, 7), (seed, 8)]
    assert len({float(draws(pair, count=1)[0, 0, 0]) for pair in seeds_for(3, seed)}) == 3


def test_without_a_seed_one_is_drawn_and_told():
    one, two = seeds_for(2), seeds_for(2)
    assert one != two
    assert [index for _, index in one] == [0, 1] and one[0][0] == one[1][0]
    assert all(0 <= seed < LARGEST == 2**53 for seed, _ in one)


def test_generators_as_in_diffusers():
    def generator(seed):
        return torch.Generator().manual_seed(seed)

    assert seeds_for(2, generator=generator(3)) == seeds_for(2, generator=generator(3))
    assert seeds_for(2, generator=generator(3)) != seeds_for(2, generator=generator(4))
    each = seeds_for(2, generator=[generator(3), generator(4)])
    assert each == [seeds_for(1, generator=generator(seed))[0] for seed in (3, 4)]
    used = generator(3)
    assert seeds_for(1, generator=used) != seeds_for(1, generator=used)  # it moves on


def test_seeds_that_cannot_be():
    with pytest.raises(ValueError, match="not both"):
        seeds_for(1, 0, generator=torch.Generator())
    with pytest.raises(ValueError, match="3 samples need 3 generators, got 1"):
        seeds_for(3, generator=[torch.Generator()])
