"""Training of dimoo-tiny's image tokenizer: an EMA codebook inside the diffusers `VQModel` format.

What is ours beside van den Oord et al. 2017 (EMA codebook, commitment, straight-through), in order of what it brought:
- the encoder is local, one small network per 8x8 pixels (`LocalEncoder`), so a code does not depend on neighbours;
- a fifth of the run has no codebook; then it starts farthest-first from the latents (`Codebook.start`);
- the swapped commitment: each picture has a twin that shares some cells (the same object on another background,
  next to other objects), and a shared cell is also pulled to the code its twin got;
- a contrast between what patches show, whatever the background, so that colour is told apart from the start;
- codes that do what others do as well are taken out in the end (`merge_doubles`);
- object-weighted L1 plus first differences, because most pixels are background and teach nothing.
"""

from __future__ import annotations

import dataclasses
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import VQModel
from torch import Tensor

from dimoo_training.codebook import Codebook, compact, merge_doubles, nearest
from dimoo_training.local_encoder import LocalEncoder
from dimoo_training.optimiser import Optimiser, warmup_then_decay
from dimoo_training.patchwork import pairs
from dimoo_training.picture_loss import picture_loss
from dimoo_training.polish import MANY_MAPS, polish
from dimoo_training.recipes import VQRecipe
from dimoo_training.state import load_state, save_state
from dimoo_training.world import WORLDS

ARCHITECTURE = {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (16, 32, 48, 96),
    "layers_per_block": 1,
    "latent_channels": 32,
    "norm_num_groups": 1,
    "vq_embed_dim": 8,
    "sample_size": 64,
    "mid_block_add_attention": False,
    "scaling_factor": 1.0,
}


def architecture(scale: int) -> dict:
    """The format's own fields; one code stands for 8 scale x 8 scale pixels, so every scale has 8x8 codes."""
    more = scale.bit_length() - 1
    return ARCHITECTURE | {
        "down_block_types": ARCHITECTURE["down_block_types"] + ("DownEncoderBlock2D",) * more,
        "up_block_types": ARCHITECTURE["up_block_types"] + ("UpDecoderBlock2D",) * more,
        "block_out_channels": ARCHITECTURE["block_out_channels"] + ARCHITECTURE["block_out_channels"][-1:] * more,
        "sample_size": ARCHITECTURE["sample_size"] * scale,
    }


def agreement(values: Tensor, others: Tensor, shared: Tensor) -> Tensor:
    """Mean squared distance of each twin's shared cells to the other twin's `others`, all (B, h, w, e)."""
    (a, b), (c, d) = values.chunk(2), others.chunk(2)
    return F.mse_loss(a[shared], d[shared]) + F.mse_loss(b[shared], c[shared])


def contrast(latents: Tensor, meaning: Tensor, shared: Tensor, most: int = 256) -> Tensor:
    """A patch of one twin has to find the patches of the same meaning among those of the other (InfoNCE).

    Without it colour arrives late: most of the spread of the pixels is light and dark. Distances are squared, in units
    of the latents' own spread.
    """
    (a, b), ours = latents.chunk(2), meaning.chunk(2)[0]
    at = (shared & (ours > 0)).nonzero().T
    at = at[:, :: max(1, at.shape[1] // most)]
    mine, theirs, means = (values[tuple(at)] for values in (a, b, ours))
    if not len(means):
        return latents.sum() * 0
    spread = latents.var(dim=(0, 1, 2)).mean()
    near = -(mine[:, None] - theirs[None]).square().sum(-1) / spread
    same = means[:, None] == means[None]
    return (near.logsumexp(1) - near.masked_fill(~same, -torch.inf).logsumexp(1)).mean()


class VQRun:
    """Everything that changes during training, and one step of it."""

    def __init__(self, recipe: VQRecipe):
        torch.manual_seed(recipe.seed)
        self.recipe, self.step, self.seconds = recipe, 0, 0.0
        self.rng = np.random.default_rng(recipe.seed)
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.world = WORLDS[recipe.world]
        self.model = VQModel(**architecture(recipe.scale), num_vq_embeddings=recipe.codes)
        self.local = LocalEncoder(self.model)
        self.codebook = Codebook(self.model.quantize.embedding, recipe.decay)
        apart = ("conv_out", "conv_in", "quant_conv")
        self.optimiser = Optimiser(self.model, recipe.lr, recipe.adam_lr, apart=apart)

    @property
    def progress(self) -> float:
        return self.seconds / (60 * self.recipe.minutes)

    def advance(self) -> dict[str, float]:
        """One update; what it measured."""
        began = time.time()
        pixels, meaning, shared = self.pairs(self.recipe.batch // 2)
        latents = self.model.encode(pixels).latents.permute(0, 2, 3, 1)         # (B, h, w, e)
        if self.progress > self.recipe.continuous and not self.codebook.started:
            self.codebook.start(self.many_latents())
        used, tidy, agree = (self.quantised if self.codebook.started else self.jittered)(latents, shared)
        made = self.model.decode(used.permute(0, 3, 1, 2), force_not_quantize=True).sample
        drawn = picture_loss(made, pixels, meaning > 0, self.recipe.object_weight)
        apart = contrast(latents, meaning, shared)
        (drawn + self.recipe.commitment * tidy + self.recipe.contrast * apart).backward()
        self.optimiser.step(warmup_then_decay(self.progress, decay=0.7))
        self.local.apply()
        self.step += 1
        self.seconds += time.time() - began
        psnr = -10 * F.mse_loss(made.detach().clamp(0, 1), pixels).log10()
        measured = {"loss": drawn, "psnr": psnr, "tidy": tidy, "contrast": apart}
        return {name: value.item() for name, value in measured.items()} | {"twins_agree": agree}

    def pairs(self, count: int, **shares: float) -> tuple[Tensor, Tensor, Tensor]:
        return pairs(self.world, count, self.rng, self.recipe.scale, **shares)

    @torch.no_grad()
    def many_latents(self, batches: int = 96) -> Tensor:
        """(n, e) latents of fresh pictures."""
        pictures = (self.pairs(16)[0] for _ in range(batches))
        return torch.cat([self.model.encode(p).latents.permute(0, 2, 3, 1).flatten(0, 2) for p in pictures])

    def jittered(self, latents: Tensor, shared: Tensor) -> tuple[Tensor, Tensor, float]:
        """Before the codebook: noise on the latents; twins pull each other."""
        spread = latents.var(dim=(0, 1, 2)).mean()          # dividing by it takes away the reward for shrinking
        noise = torch.randn(latents.shape, generator=self.generator) * spread.detach().sqrt()
        tidy = agreement(latents, latents.detach(), shared) / spread
        return latents + self.recipe.jitter * noise, tidy, 0.0

    def quantised(self, latents: Tensor, shared: Tensor) -> tuple[Tensor, Tensor, float]:
        """Straight through the nearest codes; a cell is pulled to its own code and to its twin's."""
        spread = latents.var(dim=(0, 1, 2)).mean()
        flat = latents.detach().flatten(0, 2)
        indices = nearest(latents.detach(), self.codebook.weight)
        codes = self.codebook.weight[indices]
        used = latents + (codes - latents).detach()
        tidy = (F.mse_loss(latents, codes) + 2 * agreement(latents, codes, shared)) / spread
        self.codebook.update(flat, indices.flatten())
        if self.step % self.recipe.revive_every == 0 and self.progress < 0.6:
            self.codebook.revive(flat, self.generator)
        ours, theirs = indices.chunk(2)
        return used, tidy, (ours[shared] == theirs[shared]).float().mean().item()

    def save(self, path: Path) -> None:
        codebook = {"counts": self.codebook.counts, "sums": self.codebook.sums}
        save_state(path, {
            "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "codebook": codebook,
            "step": self.step, "seconds": self.seconds, "rng": self.rng.bit_generator.state,
            "generator": self.generator.get_state(),
        })  # fmt: skip

    def restore(self, path: Path) -> None:
        state = load_state(path)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.codebook.counts, self.codebook.sums = state["codebook"]["counts"], state["codebook"]["sums"]
        self.step, self.seconds = state["step"], state["seconds"]
        self.rng.bit_generator.state = state["rng"]
        self.generator.set_state(state["generator"])


def train(recipe: VQRecipe, out: Path, log=print) -> VQModel:
    """Train, going on from `out/state.pt` when it is there; the tokenizer is in `out` in the diffusers layout.

    First without a codebook, so that the latents mean something; then the codebook starts from them; in the end it
    is thinned out and the decoder polished on what is left.
    """
    run, saved = VQRun(recipe), time.time()
    if (out / "state.pt").exists():
        run.restore(out / "state.pt")
    while run.progress < 1:
        measured = run.advance()
        if run.step % 50 == 0:
            numbers = "  ".join(f"{name} {value:.4g}" for name, value in measured.items())
            log(f"step {run.step:5d}  {run.progress:4.0%}  {numbers}")
        if time.time() - saved > 120:
            run.save(out / "state.pt")
            saved = time.time()
    run.save(out / "state.pt")
    pictures = torch.cat([run.pairs(16)[0] for _ in range(32)])
    left = merge_doubles(run.model.eval(), pictures)
    log(f"{left} of {recipe.codes} codes have a meaning of their own")
    model = polish(compact(run.model), partial(run.pairs, maps=MANY_MAPS), recipe, log)
    model.save_pretrained(out)
    (out / "recipe.json").write_text(json.dumps(dataclasses.asdict(recipe), indent=1) + "\n")
    return model
