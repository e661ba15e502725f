"""Recipes of alignment runs: functions that return a typed configuration, by command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dimoo.sampling import EarlyRejection

DRAWING = {"num_inference_steps": 8, "temperature": 1.0, "guidance_scale": 0.0}
"""As rollouts draw, and as they are judged before and after: a gain under other settings is another question."""
ASCENDING = {
    "num_inference_steps": 8, "temperature": 0.9, "quota": "powers-of-two", "block_length": 32,
    "reject": EarlyRejection(0.01, ramp="doubling"),
}  # fmt: skip
"""As texts are written: steps that double, and ends that wait (ASS and EOSER, 2509.23924)."""


@dataclass(frozen=True)
class RLRecipe:
    """One run. What is a name may also be an object or `file.py:name`.

    rule: self-grpo, grpo, dpo or sft (a key of RULES). subject: drawings, sudoku, countdown (SUBJECTS).
    rewards: reward -> weight (REWARDS). shuffled: hand them out at random, the control that must not help.
    judge: who answers: `frozen`, the model as it was at the start, or `live`, the policy.
    ask: how, `letters` or `words` (see `Judge`).
    prompts, group: P and G. settings: of the rollouts, see `Settings`; guidance is off, as in all published work.
    estimator: how likelihoods are read (ESTIMATORS); read_at: at which progress of the trajectory, for stored states
    of pictures early ones, or all steps where None. Their number is the number of masks for the other estimators.
    alpha: of Self-GRPO's softmax over rewards in [0, 1]; 8 is 4/3 for each of six questions: one more that is right
    makes a picture four times as heavy. Much less, and nearly all of the gradient is what all pictures share, whose
    mean is zero; much more, and only the best of a group is learned.
    scale: of GRPO's advantages. level: of its ratios.
    inner: updates on one round of rollouts (mu); for HT-GRPO's and UniGRPO's many. clip: low and high of the ratio.
    emphasis: weight of structure tokens, 1: all alike.
    draw_share, answer_share: the two halves of Self-GRPO. answered: questions a picture that may be learned, None: all.
    beta_image, beta_text: of the KL to the start.
    sft_share: weight of a supervised batch in each update; sft_batches: updates a round of the rule sft.
    dpo_beta: of the pairs' margin.
    lr: of AdamW, about a tenth of what it takes to train such a model: gradients of a round are mostly noise, and
    orthogonalising them, as Muon does in supervised training, would make the noise as large as the signal.
    precision: of everything that is computed, as accelerate has it; dtype: of the weights. In float32 the ratio before
    any update is 1 to 1e-3; below it is not.
    lora: rank of adapters on attention and feed-forward, None: all weights are trained. checkpointing: of activations.
    shards: where there are several processes, each holds a part of all weights.
    """

    rule: str = "self-grpo"
    subject: str = "drawings"
    rewards: dict[str, float] = field(default_factory=lambda: {"self_consistency": 1.0})
    options: dict[str, str] = field(default_factory=dict)
    shuffled: bool = False
    judge: str = "frozen"
    ask: str = "letters"
    prompts: int = 8
    group: int = 6
    settings: dict = field(default_factory=lambda: dict(DRAWING))
    estimator: str = "trajectory"
    read_at: tuple[float, ...] | None = (0.15, 0.4, 0.65)
    alpha: float = 8.0
    scale: str = "std"
    level: str = "token"
    inner: int = 1
    clip: tuple[float, float] = (0.2, 0.28)
    emphasis: float = 1.0
    draw_share: float = 1.0
    answer_share: float = 0.5
    answered: int | None = 1
    beta_image: float = 0.01
    beta_text: float = 0.02
    sft_share: float = 0.15
    sft_batches: int = 1
    dpo_beta: float = 0.1
    iterations: int = 180
    lr: float = 1e-4
    warmup: float = 0.04
    clip_norm: float = 0.5
    ema: float = 0.98
    precision: str = "no"
    dtype: str = "float32"
    micro_batch: int = 48
    lora: int | None = None
    checkpointing: bool = False
    shards: bool = False
    norms_by_part: bool = True
    sheet_every: int = 20
    save_every_seconds: float = 180.0
    seed: int = 0


def self_grpo() -> RLRecipe:
    """The report's form: softmax-weighted likelihood of pictures and gated answers, KL, one update a round.

    Questions are put in words: three of four questions in supervised training were, and letters come late. bfloat16
    makes it nearly twice as fast; a ratio read again is then 1 to 0.04, and nothing here hangs on it.
    """
    return RLRecipe(ask="words", precision="bf16")


def grpo() -> RLRecipe:
    """The same rollouts and rewards under clipped ratios, two updates a round."""
    return replace(self_grpo(), rule="grpo", rewards={"self_confidence": 1.0}, inner=2)


def hierarchical() -> RLRecipe:
    """HT-GRPO's credit: tokens that fix the layout count one and a half."""
    return replace(grpo(), emphasis=1.5)


def unigrpo() -> RLRecipe:
    """UniGRPO: likelihoods from fresh random masks, one ratio a sequence."""
    return replace(grpo(), estimator="random-mask", level="sequence", read_at=(0.0, 0.33, 0.67))


def sudoku() -> RLRecipe:
    """CJ-GRPO with EOSER and ascending steps on 4x4 Sudoku: every step of the trajectory is learned."""
    return replace(
        self_grpo(), rule="grpo", subject="sudoku", rewards={"sudoku": 1.0, "solved": 1.0}, settings=dict(ASCENDING),
        read_at=None, scale="none", inner=2, clip=(0.5, 0.5), beta_text=0.04, prompts=6, group=8,
    )  # fmt: skip


def countdown() -> RLRecipe:
    """The same on Countdown."""
    return replace(sudoku(), subject="countdown", rewards={"countdown": 1.0})


def dpo() -> RLRecipe:
    """Best against worst of each group by the model's own questions; bounds from eight shared masks."""
    masks = tuple(k / 8 for k in range(8))
    return replace(self_grpo(), rule="dpo", estimator="shared-noise", read_at=masks, group=4)


def oracle() -> RLRecipe:
    """Upper bound: the answer key is the reward. Not a method."""
    return replace(self_grpo(), rewards={"oracle": 1.0})


def large() -> RLRecipe:
    """Self-GRPO for the 8B model: adapters, checkpointing, one sequence at a time, the report's rate."""
    settings = {"num_inference_steps": 64, "temperature": 1.0, "guidance_scale": 0.0}
    return replace(
        self_grpo(), ask="letters", lora=64, checkpointing=True, dtype="bfloat16", precision="no", micro_batch=1,
        shards=True, norms_by_part=False, lr=3e-6, prompts=1, settings=settings, sft_share=0.0, ema=0.999,
        iterations=240,
    )  # fmt: skip


def debug(rule: Callable[[], RLRecipe]) -> Callable[[], RLRecipe]:
    """A minute on a CPU: shows that everything runs."""
    short = {"iterations": 3, "prompts": 2, "group": 3, "sheet_every": 1, "sft_share": 0.0}

    def recipe() -> RLRecipe:
        chosen = rule()
        settings = chosen.settings | {"num_inference_steps": min(4, chosen.settings["num_inference_steps"])}
        return replace(chosen, **short, settings=settings)

    return recipe


RECIPES: dict[str, dict[str, Callable[[], RLRecipe]]] = {
    "self-grpo": {"debug": debug(self_grpo), "tiny": self_grpo, "oracle": oracle, "large": large},
    "grpo": {
        "debug": debug(grpo), "tiny": grpo, "hierarchical": hierarchical, "unigrpo": unigrpo, "sudoku": sudoku,
        "countdown": countdown,
    },
    "dpo": {"debug": debug(dpo), "tiny": dpo},
}  # fmt: skip
"""Command -> recipe -> the function that makes it."""
