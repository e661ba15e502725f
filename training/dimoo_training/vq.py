"""Training of dimoo-tiny's image tokenizer: an EMA codebook inside the diffusers `VQModel` format.

What is ours beside van den Oord et al. 2017 (EMA codebook, commitment, straight-through):
- object-weighted L1 plus first differences, because most pixels are background and teach nothing;
- dead codes are replaced by the latents they would have served worst;
- the swapped commitment: each picture has a twin that shares some cells (the same object on another background,
  next to other objects), and a shared cell is also pulled to the code its twin got. Codes then say what stands
  in a cell and nothing about its neighbourhood, so the transformer meets few codes, each with one meaning.
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

from dimoo_training.optimiser import Optimiser, warmup_then_decay
from dimoo_training.world import WORLDS, Scene, World, render

ARCHITECTURE = {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (8, 24, 48, 96),
    "layers_per_block": 1,
    "latent_channels": 32,
    "norm_num_groups": 8,
    "num_vq_embeddings": 256,
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
    crowd: int = 8
    """Most objects in a training picture: more than the world shows, so that fewer pixels are background."""
    cropped: float = 0.6
    """Share of the run on crops of 2x2 cells; then whole pictures, so that group norms see what they will meet."""
    batch: int = 32
    lr: float = 3e-3
    object_weight: float = 4.0
    commitment: float = 0.05
    decay: float = 0.98
    revive_every: int = 25
    seed: int = 0


def twin(world: World, scene: Scene, rng: np.random.Generator) -> Scene:
    """Another scene that keeps about half of the objects and half the time the background."""
    kept = [o for o in scene.objects if rng.random() < 0.6]
    taken = {o.cell for o in kept}
    extra = [o for o in world.sample(rng).objects if o.cell not in taken]
    background = scene.background if rng.random() < 0.5 else str(rng.choice(world.backgrounds))
    return Scene(tuple(kept + extra), background)


def shared_cells(scene: Scene, other: Scene, grid: int) -> np.ndarray:
    """(grid, grid) bool: cells with the same object in both, or empty in both on the same background."""
    mine, theirs = ({o.cell: o for o in s.objects} for s in (scene, other))
    shared = np.zeros((grid, grid), dtype=bool)
    for row in range(grid):
        for column in range(grid):
            a, b = mine.get((row, column)), theirs.get((row, column))
            shared[row, column] = a == b and (a is not None or scene.background == other.background)
    return shared


def pairs(world: World, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """2*count pictures, k and k+count being twins: pixels (2*count, 3, 64, 64) and shared latents (count, 8, 8)."""
    scenes = [world.sample(rng) for _ in range(count)]
    twins = [twin(world, scene, rng) for scene in scenes]
    pixels = torch.from_numpy(np.stack([render(s) for s in scenes + twins]))
    shared = np.stack([shared_cells(a, b, world.grid) for a, b in zip(scenes, twins, strict=True)])
    shared = torch.from_numpy(shared).repeat_interleave(2, 1).repeat_interleave(2, 2)
    return pixels.permute(0, 3, 1, 2).float() / 255, shared


def crop(pixels: Tensor, shared: Tensor, cells: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """One window of cells x cells cells out of every pair, the same in both twins: a quarter of the work each."""
    row, column = (int(x) for x in rng.integers(0, shared.shape[-1] // 2 - cells + 1, 2))
    window = [slice(2 * at, 2 * (at + cells)) for at in (row, column)]
    wide = [slice(w.start * 8, w.stop * 8) for w in window]
    return pixels[..., wide[0], wide[1]], shared[..., window[0], window[1]]


class Codebook:
    """EMA statistics of the codebook; writes into the VQModel's own embedding."""

    def __init__(self, embedding: torch.nn.Embedding, decay: float):
        self.weight, self.decay = embedding.weight, decay
        self.weight.requires_grad_(False)
        self.counts = torch.ones(self.weight.shape[0])
        self.sums = self.weight.detach().clone()

    def nearest(self, latents: Tensor) -> Tensor:
        """(n, e) -> (n,) index of the nearest code."""
        return torch.cdist(latents, self.weight).argmin(1)

    @torch.no_grad()
    def update(self, latents: Tensor, indices: Tensor) -> None:
        counts = torch.bincount(indices, minlength=len(self.counts)).float()
        sums = torch.zeros_like(self.sums).index_add_(0, indices, latents)
        self.counts.lerp_(counts, 1 - self.decay)
        self.sums.lerp_(sums, 1 - self.decay)
        alive = self.counts > 1e-3
        self.weight[alive] = self.sums[alive] / self.counts[alive, None]

    @torch.no_grad()
    def revive(self, latents: Tensor, generator: torch.Generator, floor: float = 0.02) -> int:
        """Give codes used less than `floor` times a step to latents that are served worst. Returns how many."""
        dead = (self.counts < floor).nonzero().flatten()
        distance = torch.cdist(latents, self.weight).min(1).values.square()
        badly = distance > 2 * distance.mean()          # a code for what is already served well would only be a twin
        distance = distance * badly
        dead = dead[: min(16, int(badly.sum()))]
        if len(dead):
            chosen = torch.multinomial(distance, len(dead), generator=generator)
            self.weight[dead] = latents[chosen]
            self.sums[dead], self.counts[dead] = latents[chosen] * 0.1, 0.1
        return len(dead)


def picture_loss(made: Tensor, pixels: Tensor, object_weight: float) -> Tensor:
    """L1 weighted towards chromatic (object) pixels, plus L1 of horizontal and vertical first differences."""
    chroma = pixels.amax(1, keepdim=True) - pixels.amin(1, keepdim=True)
    weight = 1 + (object_weight - 1) * (chroma > 0.15).float()
    plain = (weight * (made - pixels).abs()).mean()
    edges = sum((made.diff(dim=d) - pixels.diff(dim=d)).abs().mean() for d in (-1, -2))
    return plain + 0.5 * edges


def train(recipe: VQRecipe, out: Path, log=print) -> VQModel:
    """Train, print a line every 100 steps, save to `out` in the diffusers layout every two minutes and at the end."""
    torch.manual_seed(recipe.seed)
    rng, generator = np.random.default_rng(recipe.seed), torch.Generator().manual_seed(recipe.seed)
    world = dataclasses.replace(WORLDS[recipe.world], max_objects=recipe.crowd)
    model = VQModel(**ARCHITECTURE)
    codebook = Codebook(model.quantize.embedding, recipe.decay)
    optimiser = Optimiser(model, recipe.lr, apart=("conv_out", "conv_in", "quant_conv"))
    start, saved, step = time.time(), time.time(), 0
    while (progress := (time.time() - start) / (60 * recipe.minutes)) < 1:
        pixels, shared = pairs(world, recipe.batch // 2, rng)
        if progress < recipe.cropped:
            pixels, shared = crop(pixels, shared, 2, rng)
        latents = model.encode(pixels).latents.permute(0, 2, 3, 1)              # (B, h, w, e)
        flat = latents.reshape(-1, latents.shape[-1])
        if step == 0:
            codebook.weight.data = flat.detach()[torch.randperm(len(flat), generator=generator)[torch.arange(len(codebook.counts)) % len(flat)]]
            codebook.sums = codebook.weight.clone()
        indices = codebook.nearest(flat.detach())
        codes = codebook.weight[indices].view_as(latents)
        first, second = latents.chunk(2)
        first_codes, second_codes = codes.chunk(2)
        swapped = F.mse_loss(second[shared], first_codes[shared]) + F.mse_loss(first[shared], second_codes[shared])
        spread = latents.var(dim=(0, 1, 2)).mean()          # dividing by it takes away the reward for shrinking
        late = min(4.0, max(0.0, 16 * (progress - 0.2)))    # agreeing before there is anything to say is a collapse
        commitment = (F.mse_loss(latents, codes) + late * swapped) / spread
        straight = (latents + (codes - latents).detach()).permute(0, 3, 1, 2)
        made = model.decode(straight, force_not_quantize=True).sample
        drawn = picture_loss(made, pixels, recipe.object_weight)
        (drawn + recipe.commitment * commitment).backward()
        optimiser.step(warmup_then_decay(progress))
        codebook.update(flat.detach(), indices)
        if step % recipe.revive_every == recipe.revive_every - 1 and progress < 0.6:
            codebook.revive(flat.detach(), generator)
        if step % 40 == 0:
            psnr = -10 * F.mse_loss(made.clamp(0, 1), pixels).log10()
            ours, theirs = indices.view(latents.shape[:3]).chunk(2)
            agree = (ours[shared] == theirs[shared]).float().mean()
            log(f"step {step:5d}  {progress:4.0%}  loss {drawn:.4f}  psnr {psnr:.1f}  commitment {commitment:.4f}  "
                f"spread {spread:.3f}  codes {(codebook.counts > 0.02).sum()}  twins agree {agree:.1%}")
        if time.time() - saved > 120:
            save(model, out, recipe)
            saved = time.time()
        step += 1
    save(model, out, recipe)
    return model


def save(model: VQModel, out: Path, recipe: VQRecipe) -> None:
    model.save_pretrained(out)
    (out / "recipe.json").write_text(json.dumps(dataclasses.asdict(recipe), indent=1))


if __name__ == "__main__":
    import sys

    train(VQRecipe(minutes=float(sys.argv[1]) if len(sys.argv) > 1 else 10), Path("runs/vq"))
