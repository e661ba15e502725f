"""Recipes: functions that return a typed configuration, smallest first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import nn

from dimoo.model.config import LLaDAConfig
from dimoo_training.optimiser import AdamW, Optimiser

TINY_SHAPE = {
    "d_model": 256, "n_heads": 8, "n_kv_heads": 8, "n_layers": 6, "mlp_hidden_size": 768, "rope_theta": 1000.0,
    "qk_norm": True, "max_sequence_length": 512,
}  # fmt: skip
TINY_BOOK = {
    "draw": 40_000, "full": 6_000, "edit": 20_000, "dense": 6_000, "control": 6_000, "subject": 6_000, "style": 6_000,
}  # fmt: skip
SMALL_SHAPE = TINY_SHAPE | {"d_model": 512, "n_layers": 9, "mlp_hidden_size": 1408}
SMALL_BOOK = {kind: 3 * count // 2 for kind, count in TINY_BOOK.items()}


Shape = tuple[int, int]


@dataclass(frozen=True)
class Course:
    """What every supervised run states, whatever it trains on."""

    steps: int = 12_000
    until: int = 0
    """Step to stop at, before the schedule of `steps` is over; 0: none."""
    lr: float = 4e-3
    decay: float = 0.2
    """Share of the run at its end over which the rate falls to zero."""
    ema: float = 0.998
    """0: no average is kept."""
    precision: str = "bf16"
    compile: bool = True
    accumulate: int = 1
    """Over how many batches of a step the gradient is averaged; with 1 they are summed, one of each kind."""
    save_every_seconds: float = 180.0
    log_every: int = 25
    seed: int = 0
    emphasis: dict[str, float] = field(default_factory=dict)
    """Kind of example -> factor of its loss; 1 for kinds that are not named."""

    def optimiser(self, model: nn.Module) -> Optimiser:
        return Optimiser(model, self.lr)


@dataclass(frozen=True)
class SFTRecipe(Course):
    """One supervised run on the small world."""

    shape: dict = field(default_factory=lambda: dict(TINY_SHAPE))
    scale: int = 1
    """1: pictures of 64x64 pixels; 2: of 128x128. The image tokenizer has to be of the same scale."""
    books: dict[str, dict[str, int]] = field(default_factory=lambda: {"first": TINY_BOOK, "full": TINY_BOOK})
    """World -> how many picture tasks of each kind to make."""
    easy_until: float = 0.15
    """Share of the run on the first world alone; from there on it keeps `easy_share`."""
    easy_share: float = 0.2
    always: dict[str, Shape] = field(default_factory=lambda: {
        "draw": (22, 100), "edit": (8, 172), "answer": (22, 216), "puzzle": (14, 76),
    })  # fmt: skip
    """Kinds in every step, and the (examples, tokens) of their batch; longer examples are left out."""
    in_turn: dict[str, Shape] = field(default_factory=lambda: {
        "full": (8, 126), "dense": (8, 172), "control": (6, 232), "subject": (8, 172), "style": (6, 232),
    })  # fmt: skip
    """Kinds of which each step has one."""
    drills: dict[str, tuple[float, float]] = field(default_factory=lambda: {
        "exists": (0.23, 0.277), "relation": (0.277, 0.301),
    })  # fmt: skip
    """Kind of question -> part of the run in which it is all that is learned. Among everything else, yes or no stays
    at chance for thousands of steps; alone it is found in two hundred, and kept."""
    emphasis: dict[str, float] = field(default_factory=lambda: {"answer": 3.0, "puzzle": 1.5})
    """Answers and puzzles are learned last: few of their tokens teach anything, and pictures have larger gradients."""
    workers: int = 0
    """Processes that make batches ahead of the steps; 0: made in the run itself."""

    def batches(self, step: int) -> dict[str, Shape]:
        """The batches of one step."""
        for kind, (start, stop) in self.drills.items():
            if start <= step / self.steps < stop:
                return {kind: self.always["answer"]}
        turns = list(self.in_turn.items())
        return self.always | dict([turns[step % len(turns)]] if turns else [])

    def shares(self, progress: float) -> dict[str, float]:
        """How often each book is used: the first world alone, then all of them, the larger ones more."""
        easy, *others = self.books
        if progress < self.easy_until or not others:
            return {easy: 1.0}
        return {easy: self.easy_share, **dict.fromkeys(others, (1 - self.easy_share) / len(others))}

    def model_config(self, vocab, text_tokenizer) -> LLaDAConfig:
        """The model's configuration for a vocabulary."""
        return LLaDAConfig(
            **self.shape, vocab_size=vocab.size, mask_token_id=vocab.mask, pad_token_id=vocab.pad,
            eos_token_id=text_tokenizer.eos_token_id, image_token_offset=vocab.image_offset,
            codebook_size=vocab.codebook_size,
        )  # fmt: skip


def debug() -> SFTRecipe:
    """A minute on a CPU: shows that everything runs; the model is useless. With the embedded image tokenizer the loss
    of drawings falls from 5.2 at step 10 to about 1.5 at step 60, that of answers from 5.5 to about 2.7."""
    shape = dict(TINY_SHAPE, d_model=64, n_heads=4, n_kv_heads=4, n_layers=2, mlp_hidden_size=128)
    book = {"draw": 300, "full": 40, "edit": 150, "dense": 40, "control": 40, "subject": 40, "style": 40}
    always = {"draw": (8, 100), "edit": (4, 172), "answer": (4, 184), "puzzle": (4, 76)}
    return SFTRecipe(
        shape=shape, books={"first": book}, always=always, drills={}, steps=60, compile=False, log_every=10
    )


def tiny_base() -> SFTRecipe:
    """dimoo-tiny before reinforcement learning: the very run of `tiny`, left while a third of its drawings are to be
    still wrong; the step to leave it at is not measured yet. The average of the weights stands in for the end of the
    schedule, and some of it is from the drills, which end 400 steps before. A run of `tiny` in work gives the same:
    see `snapshot`."""
    return replace(tiny(), until=4_000)


def tiny() -> SFTRecipe:
    """dimoo-tiny: about seven hours on two cores."""
    return SFTRecipe()


def small() -> SFTRecipe:
    """dimoo-small: 128x128 pictures, 31M parameters; sized for eight minutes of one H200 with 16 cores."""
    always = {"draw": (224, 100), "edit": (80, 172), "answer": (96, 216), "puzzle": (96, 76)}
    in_turn = {"full": (112, 126), "dense": (80, 172), "control": (64, 232), "subject": (80, 172), "style": (64, 232)}
    return SFTRecipe(
        shape=dict(SMALL_SHAPE), scale=2, books={"first": SMALL_BOOK, "full": SMALL_BOOK}, always=always,
        in_turn=in_turn, workers=14, steps=4_000, lr=3e-3, decay=0.3, save_every_seconds=60.0,
    )  # fmt: skip


@dataclass(frozen=True)
class VQRecipe:
    """One run of the image tokenizer; `minutes` of wall time set the length."""

    world: str = "full"
    scale: int = 1
    """1: pictures of 64x64 pixels; 2: of 128x128."""
    minutes: float = 16.0
    polish: float = 0.35
    """What comes on top for the decoder alone, as a share of `minutes`."""
    codes: int = 1024
    """Codes to start with; `merge_doubles` leaves those with a meaning of their own."""
    batch: int = 16
    lr: float = 1.5e-2
    adam_lr: float = 3e-3
    object_weight: float = 4.0
    commitment: float = 0.05
    contrast: float = 0.1
    continuous: float = 0.2
    """Share of the run before there is a codebook; `jitter` is the noise on the latents then, in their spread."""
    jitter: float = 0.05
    decay: float = 0.98
    revive_every: int = 25
    seed: int = 0


def vq_debug() -> VQRecipe:
    """Half a minute: its pictures are blurs."""
    return VQRecipe(minutes=0.4, codes=32)


def vq_small() -> VQRecipe:
    """For 128x128 pictures, 8x8 codes like the others."""
    return VQRecipe(scale=2, minutes=40.0)


VQ_RECIPES = {"debug": vq_debug, "tiny": VQRecipe, "small": vq_small}
RECIPES = {"debug": debug, "tiny-base": tiny_base, "tiny": tiny, "small": small}


@dataclass(frozen=True)
class FineTune(Course):
    """One run of `dimoo train finetune`; rates and clipping are those of the released script unless said."""

    steps: int = 0
    """0: `epochs` over the data."""
    epochs: float = 2.0
    lr: float = 2e-5
    decay: float = 0.0
    ema: float = 0.0
    compile: bool = False
    weight_decay: float = 0.1
    clip: float = 4.0
    batch: int = 2
    """Examples in one forward of one process; times `accumulate` and the processes: the global batch."""
    accumulate: int = 4
    chunk: int = 500
    """Global batches among which examples of near lengths are shuffled."""
    rank: int = 0
    """Rank of the LoRA adapters on every matrix of the blocks; 0: all weights are trained."""
    checkpointing: bool = True
    """Recompute each block in the backward pass instead of keeping its activations."""
    save_every_seconds: float = 1800.0
    log_every: int = 10

    def optimiser(self, model: nn.Module) -> Optimiser:
        return AdamW(model, self.lr, self.weight_decay, self.clip)


def lora() -> FineTune:
    """Adapters of rank 32: an 8B model on one device of 80 GB. The rate is ten times that of all weights."""
    return FineTune(rank=32, lr=2e-4, weight_decay=0.0, clip=1.0)


def full() -> FineTune:
    """All weights, in shards over the processes: an 8B model needs about 130 GB for weights and optimiser."""
    return FineTune()


FINE_TUNES = {"lora": lora, "full": full}
