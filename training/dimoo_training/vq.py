"""Training of dimoo-tiny's image tokenizer: an EMA codebook inside the diffusers `VQModel` format.

What is ours beside van den Oord et al. 2017 (EMA codebook, commitment, straight-through), in order of what it brought:
- the encoder is local, one small network per 8x8 pixels (`LocalEncoder`), so a code does not depend on neighbours;
- a third of the run has no codebook; then it starts farthest-first from the latents (`Codebook.start`);
- the swapped commitment: each picture has a twin that shares some cells (the same object on another background,
  next to other objects), and a shared cell is also pulled to the code its twin got;
- codes that do what others do as well are taken out in the end (`merge_doubles`);
- object-weighted L1 plus first differences, because most pixels are background and teach nothing.
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import VQModel
from torch import Tensor

from dimoo_training.codebook import Codebook, compact, merge_doubles, nearest
from dimoo_training.optimiser import Optimiser, warmup_then_decay
from dimoo_training.state import load_state, save_state
from dimoo_training.twins import pairs
from dimoo_training.world import WORLDS, World

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


@dataclass(frozen=True)
class VQRecipe:
    """Settings of one run; `minutes` of wall time set the length."""

    world: str = "first"
    minutes: float = 10.0
    codes: int = 512
    """Codes to start with; `merge_doubles` leaves those with a meaning of their own."""
    crowd: int = 8
    """Most objects in a training picture: more than the world shows, so that fewer pixels are background."""
    batch: int = 16
    lr: float = 1.5e-2
    adam_lr: float = 3e-3
    object_weight: float = 4.0
    commitment: float = 0.05
    continuous: float = 0.3
    """Share of the run before there is a codebook; `jitter` is the noise on the latents then, in their spread."""
    jitter: float = 0.1
    decay: float = 0.98
    revive_every: int = 25
    seed: int = 0


class LocalEncoder:
    """Keeps every encoder kernel to the taps inside the code's own 8x8 pixels.

    The format has 3x3 kernels everywhere, and with them the code of a shape would depend on what stands next to it
    (measured: the commonest code of an object's quarter then covers 43% of its appearances). Centre taps only, and
    the first two taps of the strided kernels, make the encoder a small network per patch.
    """

    def __init__(self, model: VQModel):
        self.kernels = []
        for module in model.encoder.modules():
            if isinstance(module, torch.nn.Conv2d) and module.kernel_size == (3, 3):
                mask = torch.zeros(3, 3)
                if module.stride == (2, 2):
                    mask[:2, :2] = 1
                else:
                    mask[1, 1] = 1
                self.kernels.append((module.weight, mask))
        with torch.no_grad():
            for weight, mask in self.kernels:
                weight.mul_((9 / mask.sum()) ** 0.5)        # fewer taps, the same variance
        self.apply()

    @torch.no_grad()
    def apply(self) -> None:
        for weight, mask in self.kernels:
            weight.mul_(mask)


def picture_loss(made: Tensor, pixels: Tensor, object_weight: float) -> Tensor:
    """L1 weighted towards chromatic (object) pixels, plus L1 of horizontal and vertical first differences."""
    chroma = pixels.amax(1, keepdim=True) - pixels.amin(1, keepdim=True)
    weight = 1 + (object_weight - 1) * (chroma > 0.15).float()
    plain = (weight * (made - pixels).abs()).mean()
    edges = sum((made.diff(dim=d) - pixels.diff(dim=d)).abs().mean() for d in (-1, -2))
    return plain + 0.5 * edges


def agreement(values: Tensor, others: Tensor, shared: Tensor) -> Tensor:
    """Mean squared distance of each twin's shared cells to the other twin's `others`, all (B, h, w, e)."""
    (a, b), (c, d) = values.chunk(2), others.chunk(2)
    return F.mse_loss(a[shared], d[shared]) + F.mse_loss(b[shared], c[shared])


class VQRun:
    """Everything that changes during training, and one step of it."""

    def __init__(self, recipe: VQRecipe):
        torch.manual_seed(recipe.seed)
        self.recipe, self.step, self.seconds = recipe, 0, 0.0
        self.rng = np.random.default_rng(recipe.seed)
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.world = dataclasses.replace(WORLDS[recipe.world], max_objects=recipe.crowd)
        self.model = VQModel(**ARCHITECTURE, num_vq_embeddings=recipe.codes)
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
        pixels, shared = pairs(self.world, self.recipe.batch // 2, self.rng)
        latents = self.model.encode(pixels).latents.permute(0, 2, 3, 1)         # (B, h, w, e)
        if self.progress > self.recipe.continuous and not self.codebook.started:
            self.codebook.start(many_latents(self.model, self.world, self.rng))
        used, tidy, agree = (self.quantised if self.codebook.started else self.jittered)(latents, shared)
        made = self.model.decode(used.permute(0, 3, 1, 2), force_not_quantize=True).sample
        drawn = picture_loss(made, pixels, self.recipe.object_weight)
        (drawn + self.recipe.commitment * tidy).backward()
        self.optimiser.step(warmup_then_decay(self.progress))
        self.local.apply()
        self.step += 1
        self.seconds += time.time() - began
        psnr = -10 * F.mse_loss(made.detach().clamp(0, 1), pixels).log10()
        return {"loss": drawn.item(), "psnr": psnr.item(), "tidy": tidy.item(), "twins_agree": agree}

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
    is thinned out.
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
    pictures = torch.cat([pairs(WORLDS[recipe.world], 16, run.rng)[0] for _ in range(16)])
    left = merge_doubles(run.model.eval(), pictures)
    log(f"{left} of {recipe.codes} codes have a meaning of their own")
    model = compact(run.model)
    model.save_pretrained(out)
    (out / "recipe.json").write_text(json.dumps(dataclasses.asdict(recipe), indent=1) + "\n")
    return model


@torch.no_grad()
def many_latents(model: VQModel, world: World, rng: np.random.Generator, batches: int = 24) -> Tensor:
    """(n, e) latents of fresh pictures."""
    pictures = (pairs(world, 16, rng)[0] for _ in range(batches))
    return torch.cat([model.encode(p).latents.permute(0, 2, 3, 1).flatten(0, 2) for p in pictures])
