"""The objectives of alignment as pure functions of log-probabilities and rewards; nothing here knows a model.

Shapes: P prompts, G samples a prompt, Q moves (one stored step of one sample each), U tokens written by a move.
`valid` (Q, U) says which tokens are real, `weight` (Q, U) what each counts (None: 1).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

LOG_RATIO = 10.0
"""Log-ratios are cut to +-10: one code of seven nats would otherwise outweigh a picture."""


# From rewards to weights of samples.


def softmax_weights(rewards: Tensor, alpha: float) -> Tensor:
    """Self-GRPO (Lumina-DiMOO 2025): rewards (P, G) -> exp(alpha r_g) / sum_h exp(alpha r_h), (P, G).

    No negative weights and no baseline: weighted regression inside a group. A group whose rewards are all alike
    teaches nothing about rewards; its weights are 0 here, while the report keeps them.
    """
    return (alpha * rewards).softmax(1) * spread(rewards)[:, None]


def advantages(rewards: Tensor, scale: str = "std", eps: float = 0.05) -> Tensor:
    """GRPO (Shao et al. 2024): rewards (P, G) minus their group's mean, over its deviation (`std`) or not (`none`).

    `none` is d1's and Dr. GRPO's form: dividing favours prompts that are nearly solved or nearly hopeless.
    """
    centred = rewards - rewards.mean(1, keepdim=True)
    if scale == "none":
        return centred
    if scale != "std":
        raise ValueError(f"unknown scale of advantages {scale!r}; allowed: std, none")
    return centred / (rewards.std(1, correction=0, keepdim=True) + eps)


def spread(rewards: Tensor) -> Tensor:
    """(P,) bool: groups whose rewards (P, G) are not all alike."""
    return (rewards.amax(1) - rewards.amin(1)) > 1e-6


def gate(right: Tensor, sample: Tensor, rewards: Tensor) -> Tensor:
    """Which answers may teach: right (n,) bool, sample (n,) whose picture each is about, rewards (P, G) -> (n,) bool.

    The right answer is known from the prompt, not from the picture. Where the picture is wrong it would teach to
    say what was asked for instead of what is there, and such a judge pays for everything. So only answers that the
    model gave itself count, about pictures at or above their group's median. The report has no gate.
    """
    good = rewards >= rewards.quantile(0.5, dim=1, keepdim=True)
    return right & good.flatten()[sample]


# From log-probabilities to losses.


def token_mean(values: Tensor, valid: Tensor, weight: Tensor | None = None) -> Tensor:
    """(Q, U) -> (Q,): sum of weight * value over the number of real tokens."""
    weighted = values if weight is None else values * weight
    return weighted.masked_fill(~valid, 0.0).sum(1) / valid.sum(1).clamp_min(1)


def self_grpo(log_p: Tensor, valid: Tensor, sample_weight: Tensor, weight: Tensor | None = None) -> Tensor:
    """-sum of w * mean log p over the tokens of each move, (Q, U) -> scalar.

    sample_weight (Q,): the softmax weight of the sample of each move, over the number of its moves.
    """
    return -(sample_weight * token_mean(log_p, valid, weight)).sum()


def grpo(
    log_p: Tensor, old: Tensor, valid: Tensor, advantage: Tensor, clip: tuple[float, float] = (0.2, 0.28),
    weight: Tensor | None = None, level: str = "token",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """-min(ratio A, clip(ratio, 1 - low, 1 + high) A), a value for each move (Q,), and its share of clipped tokens.

    On stored states this is CJ-GRPO (Yang et al. 2025, eq. 9: mean in U_s, then over steps). With random masks and
    `level="sequence"`, one ratio from the mean log-probability of the masked tokens, it is UniGRPO (MMaDA 2025).

    Args:
        log_p, old: (Q, U) under the policy now and when it was sampled. advantage: (Q,).
        clip: low and high; a larger high is DAPO's (Yu et al. 2025).
    """
    if level not in ("token", "sequence"):
        raise ValueError(f"unknown level of ratios {level!r}; allowed: token, sequence")
    gap = (log_p - old).clamp(-LOG_RATIO, LOG_RATIO)
    if level == "sequence":
        gap = token_mean(gap, valid)[:, None].expand_as(gap)
    ratio, gain = gap.exp(), advantage[:, None]
    cut = ratio.clamp(1 - clip[0], 1 + clip[1])
    surrogate = torch.minimum(ratio * gain, cut * gain)
    clipped = (cut * gain < ratio * gain).float()
    return -token_mean(surrogate, valid, weight), token_mean(clipped, valid).detach()


def k3(log_p: Tensor, reference: Tensor) -> Tensor:
    """KL(policy || reference) of each token, sampled from the policy: exp(d) - d - 1, d = log ref - log p, cut to +-10.

    Never negative, unbiased, low variance (Schulman 2020).
    """
    gap = (reference - log_p).clamp(-LOG_RATIO, LOG_RATIO)
    return gap.exp() - gap - 1


def structure_weights(entropy: Tensor, tokens: Tensor, emphasis: float, share: float = 0.5) -> Tensor:
    """HT-GRPO's hierarchical weights, by step: entropy and tokens (B, S) -> (B, S), mean 1 over the tokens of a sample.

    Tokens that are written while the first `share` of a trajectory's entropy is spent fix the layout: they are its
    structure and count `emphasis`; the rest, its refinement, counts what is left. The paper (2605.16842) says
    early and by entropy, this is our reading; its schedule of inner iterations by set is not kept.

    Args:
        entropy: mean over the tokens a step writes, in nats. tokens: how many it writes.
    """
    spent = (entropy * tokens).cumsum(1)
    total = spent[:, -1:].clamp_min(1e-9)
    early = (spent - entropy * tokens) < share * total                       # (B, S), the first step always
    count, of_early = tokens.sum(1, keepdim=True), (tokens * early).sum(1, keepdim=True)
    factor = torch.minimum(torch.full_like(count, emphasis), count / of_early.clamp_min(1e-9))
    rest = ((count - factor * of_early) / (count - of_early).clamp_min(1e-9)).clamp_min(0.0)
    return torch.where(early, factor, rest)


# Likelihoods of whole answers, and DPO.


def noise_levels(length: int, count: int, rng) -> list[int]:
    """`count` numbers of masked tokens, 1 to `length`, one in each stratum of equal width.

    All the budget goes to different noise levels, one mask each: the variance is then least (VRPO, Zhu et al. 2025).
    """
    places = (rng.permutation(count) + rng.random(count)) / count
    return [1 + min(length - 1, int(place * length)) for place in places]


def elbo(log_p: Tensor, valid: Tensor, length: Tensor) -> Tensor:
    """One estimate a move of a lower bound on log p(answer), (Q, U) -> (Q,): length/l * sum over its l masked tokens.

    The exact-count form of LLaDA's bound (Nie et al. 2025, eq. 14): of lower variance than 1/t with coin flips.
    """
    masked = valid.sum(1).clamp_min(1)
    return log_p.masked_fill(~valid, 0.0).sum(1) * length / masked


def dpo(better: Tensor, better_ref: Tensor, worse: Tensor, worse_ref: Tensor, beta: float) -> Tensor:
    """-log sigmoid(beta [(B - B_ref)(better) - (B - B_ref)(worse)]) of pairs, elementwise.

    The bounds B of policy and reference must come from the same masks (shared noise): their noise then cancels.
    """
    return -logsigmoid(beta * ((better - better_ref) - (worse - worse_ref)))
