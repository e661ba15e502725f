"""Recipes: functions that return a typed configuration, smallest first."""

from __future__ import annotations

from dataclasses import dataclass, field

from dimoo.model.config import LLaDAConfig

TINY_SHAPE = {
    "d_model": 256, "n_heads": 8, "n_kv_heads": 8, "n_layers": 6, "mlp_hidden_size": 768, "rope_theta": 1000.0,
    "qk_norm": True, "max_sequence_length": 512,
}  # fmt: skip
TINY_BOOK = {
    "draw": 40_000, "full": 6_000, "edit": 20_000, "dense": 6_000, "control": 6_000, "subject": 6_000, "style": 6_000,
}  # fmt: skip


Shape = tuple[int, int]


@dataclass(frozen=True)
class SFTRecipe:
    """One supervised run."""

    shape: dict = field(default_factory=lambda: dict(TINY_SHAPE))
    books: dict[str, dict[str, int]] = field(default_factory=lambda: {"first": TINY_BOOK, "full": TINY_BOOK})
    """World -> how many picture tasks of each kind to make."""
    easy_until: float = 0.15
    """Share of the run on the first world alone; from there on it keeps `easy_share`."""
    easy_share: float = 0.2
    always: dict[str, Shape] = field(default_factory=lambda: {
        "draw": (22, 100), "edit": (8, 172), "answer": (26, 184), "puzzle": (14, 76),
    })  # fmt: skip
    """Kinds in every step, and the (examples, tokens) of their batch; longer examples are left out."""
    in_turn: dict[str, Shape] = field(default_factory=lambda: {
        "full": (8, 126), "dense": (8, 172), "control": (6, 232), "subject": (8, 172), "style": (6, 232),
    })  # fmt: skip
    """Kinds of which each step has one."""
    steps: int = 12_000
    lr: float = 4e-3
    decay: float = 0.2
    """Share of the run at its end over which the rate falls to zero."""
    ema: float = 0.998
    precision: str = "bf16"
    compile: bool = True
    save_every_seconds: float = 180.0
    log_every: int = 25
    seed: int = 0

    def batches(self, step: int) -> dict[str, Shape]:
        """The batches of one step."""
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
    """A minute on a CPU: shows that everything runs and the loss falls; the model is useless."""
    shape = dict(TINY_SHAPE, d_model=64, n_heads=4, n_kv_heads=4, n_layers=2, mlp_hidden_size=128)
    book = {"draw": 300, "full": 40, "edit": 150, "dense": 40, "control": 40, "subject": 40, "style": 40}
    always = {"draw": (8, 100), "edit": (4, 172), "answer": (4, 184), "puzzle": (4, 76)}
    return SFTRecipe(shape=shape, books={"first": book}, always=always, steps=60, compile=False, log_every=10)


def tiny() -> SFTRecipe:
    """dimoo-tiny: about five hours on two cores."""
    return SFTRecipe()


RECIPES = {"debug": debug, "tiny": tiny}
