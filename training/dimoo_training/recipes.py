"""Recipes: functions that return a typed configuration, smallest first."""

from __future__ import annotations

from dataclasses import dataclass, field

from dimoo.model.config import LLaDAConfig

TINY_SHAPE = {
    "d_model": 256, "n_heads": 8, "n_kv_heads": 8, "n_layers": 6, "mlp_hidden_size": 768, "rope_theta": 1000.0,
    "qk_norm": True, "max_sequence_length": 512,
}  # fmt: skip


@dataclass(frozen=True)
class SFTRecipe:
    """One supervised run. `batch` gives the examples of each kind in every optimiser step."""

    world: str = "first"
    shape: dict = field(default_factory=lambda: dict(TINY_SHAPE))
    captions: int = 36_000
    edits: int = 16_000
    batch: dict[str, int] = field(default_factory=lambda: {"draw": 32, "edit": 12, "answer": 14})
    lengths: dict[str, int] = field(default_factory=lambda: {"draw": 96, "edit": 164, "answer": 160})
    """Tokens every example of a kind is padded to: one shape a kind, so each is compiled once."""
    steps: int = 3_000
    lr: float = 4e-3
    compile: bool = True
    save_every_seconds: float = 180.0
    log_every: int = 25
    seed: int = 0

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
    return SFTRecipe(
        shape=shape, captions=400, edits=200, batch={"draw": 8, "edit": 4, "answer": 4}, steps=60, compile=False,
        log_every=10,
    )  # fmt: skip


def tiny() -> SFTRecipe:
    """dimoo-tiny: about 75 minutes on two cores."""
    return SFTRecipe()


RECIPES = {"debug": debug, "tiny": tiny}
