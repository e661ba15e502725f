"""The objectives of alignment against cases worked out by hand."""

from math import e, exp, log

import numpy as np
import pytest
import torch

from dimoo_training.rl import objectives as o

T = torch.tensor


def close(got, wanted):
    torch.testing.assert_close(torch.as_tensor(got, dtype=torch.float32), torch.as_tensor(wanted, dtype=torch.float32))


# From rewards to weights


def test_softmax_weights_and_groups_without_a_difference():
    weights = o.softmax_weights(T([[1.0, 0.0], [0.3, 0.3]]), alpha=2.0)
    close(weights, [[e**2 / (e**2 + 1), 1 / (e**2 + 1)], [0.0, 0.0]])


def test_advantages():
    rewards = T([[0.0, 1.0, 1.0, 0.0], [0.5, 0.5, 0.5, 0.5]])
    close(o.advantages(rewards, "none"), [[-0.5, 0.5, 0.5, -0.5], [0, 0, 0, 0]])
    close(o.advantages(rewards, "std", eps=0.0)[0], [-1, 1, 1, -1])
    close(o.advantages(rewards)[1], [0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"'max'.*std, none"):
        o.advantages(rewards, "max")


def test_only_right_answers_about_the_better_half_teach():
    rewards = T([[0.0, 0.5, 1.0], [1.0, 1.0, 0.2]])
    right = T([True, True, False, True, True, True])
    sample = T([0, 1, 1, 2, 3, 5])
    assert o.gate(right, sample, rewards).tolist() == [False, True, False, True, True, False]


# From log-probabilities to losses


def test_token_mean_leaves_out_what_is_not_real():
    values, valid = T([[1.0, 3.0, 99.0], [99.0, 99.0, 99.0]]), T([[True, True, False], [False, False, False]])
    close(o.token_mean(values, valid), [2.0, 0.0])
    close(o.token_mean(values, valid, T([[1.0, 0.5, 7.0]] * 2)), [1.25, 0.0])


def test_self_grpo_is_a_weighted_mean_log_likelihood():
    log_p = T([[log(0.5), log(0.25)], [log(0.1), 0.0]], dtype=torch.float32, requires_grad=True)
    valid, weight = T([[True, True], [True, False]]), T([0.75, 0.25])
    loss = o.self_grpo(log_p, valid, weight)
    close(loss.detach(), -(0.75 * (log(0.5) + log(0.25)) / 2 + 0.25 * log(0.1)))
    loss.backward()
    close(log_p.grad, [[-0.375, -0.375], [-0.25, 0.0]])


@pytest.mark.parametrize(("ratio", "gain", "surrogate", "clipped"), [
    (1.0, 1.0, 1.0, 0), (1.5, 1.0, 1.28, 1), (0.5, 1.0, 0.5, 0), (1.5, -1.0, -1.5, 0), (0.5, -1.0, -0.8, 1),
])  # fmt: skip
def test_grpo_takes_the_lesser_of_ratio_and_clipped_ratio(ratio, gain, surrogate, clipped):
    old, valid = T([[log(0.2)]]), T([[True]])
    loss, share = o.grpo(old + log(ratio), old, valid, T([gain]), clip=(0.2, 0.28))
    close(loss, [-surrogate])
    close(share, [clipped])


def test_before_an_update_the_gradient_of_grpo_is_that_of_reinforce():
    old = T([[-1.0, -2.0]])
    log_p = old.clone().requires_grad_()
    o.grpo(log_p, old, T([[True, True]]), T([3.0]))[0].sum().backward()
    close(log_p.grad, [[-1.5, -1.5]])


def test_a_ratio_of_the_sequence_is_the_mean_of_its_tokens():
    old = torch.zeros(1, 3)
    log_p, valid = T([[log(1.2), log(0.9), 50.0]]), T([[True, True, False]])
    loss, _ = o.grpo(log_p, old, valid, T([1.0]), level="sequence")
    close(loss, [-exp((log(1.2) + log(0.9)) / 2)])
    with pytest.raises(ValueError, match=r"'word'.*token, sequence"):
        o.grpo(log_p, old, valid, T([1.0]), level="word")


def test_far_ratios_are_cut():
    loss, _ = o.grpo(T([[0.0]]), T([[-1000.0]]), T([[True]]), T([-1.0]))
    close(loss, [exp(o.LOG_RATIO)])


def test_k3_is_the_kl_on_average_and_never_negative():
    p, q = T([0.7, 0.2, 0.1]), T([0.5, 0.25, 0.25])
    values = o.k3(p.log(), q.log())
    assert bool((values >= 0).all())
    close((p * values).sum(), (p * (p / q).log()).sum())
    assert float(o.k3(T(-1.0), T(-1.0))) == 0.0


# Structure and refinement


def test_structure_is_what_is_written_while_half_the_entropy_is_spent():
    entropy, tokens = T([[4.0, 1.0, 1.0]]), T([[1.0, 2.0, 1.0]])      # spent: 4, 6, 7; half is 3.5
    close(o.structure_weights(entropy, tokens, emphasis=1.5), [[1.5, 2.5 / 3, 2.5 / 3]])


@pytest.mark.parametrize("emphasis", [1.0, 1.5, 9.0])
def test_structure_weights_have_mean_one(emphasis):
    rng = torch.Generator().manual_seed(0)
    entropy, tokens = torch.rand(5, 8, generator=rng), torch.randint(0, 5, (5, 8), generator=rng).float()
    weights = o.structure_weights(entropy, tokens, emphasis)
    close((weights * tokens).sum(1) / tokens.sum(1), torch.ones(5))
    assert bool((weights >= 0).all())


def test_nothing_uncertain_gives_equal_weights():
    close(o.structure_weights(torch.zeros(1, 2), T([[2.0, 2.0]]), 1.5)[0].mean(), 1.0)


# Bounds and DPO


def test_noise_levels_cover_the_length():
    levels = sorted(o.noise_levels(16, 8, np.random.default_rng(0)))
    assert [(level - 1) // 2 for level in levels] == list(range(8))       # one in each eighth
    assert set(o.noise_levels(1, 4, np.random.default_rng(0))) == {1}


def test_the_bound_of_independent_tokens_is_their_log_likelihood():
    """Where a token's probability does not depend on the masks, every exact-count estimate has that mean."""
    token, rng = T([-1.0, -2.0, -3.0, -0.5]), np.random.default_rng(0)
    estimates = []
    for count in o.noise_levels(4, 400, rng):
        masked = rng.permutation(4)[:count]
        valid = torch.arange(4)[None] < count
        estimates.append(o.elbo(torch.nn.functional.pad(token[masked], (0, 4 - count))[None], valid, T([4])))
    assert float(torch.cat(estimates).mean()) == pytest.approx(float(token.sum()), abs=0.2)
    close(o.elbo(token[None], torch.ones(1, 4, dtype=torch.bool), T([4])), [-6.5])


def test_dpo():
    margin = (T(-3.0) - T(-4.0)) - (T(-6.0) - T(-5.0))                     # 1 - (-1)
    close(o.dpo(T(-3.0), T(-4.0), T(-6.0), T(-5.0), beta=0.1), log(1 + exp(-0.1 * float(margin))))
    close(o.dpo(T(-3.0), T(-3.0), T(-9.0), T(-9.0), beta=0.1), log(2))
