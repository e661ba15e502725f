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
    "block_out_channels": (16, 32, 48, 96),
    "layers_per_block": 1,
    "latent_channels": 32,
    "norm_num_groups": 1,
    "num_vq_embeddings": 512,
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


class Codebook:
    """EMA statistics of the codebook; writes into the VQModel's own embedding."""

    def __init__(self, embedding: torch.nn.Embedding, decay: float):
        self.weight, self.decay = embedding.weight, decay
        self.weight.requires_grad_(False)
        self.counts = self.sums = None

    @property
    def started(self) -> bool:
        return self.counts is not None

    @torch.no_grad()
    def start(self, latents: Tensor) -> None:
        """Farthest-first over latents (n, e): each code is the latent that the codes so far serve worst.

        Kinds of patches seen once in a thousand get a code of their own, and the background gets one, not hundreds.
        """
        chosen = latents[:1]
        distance = torch.cdist(latents, chosen).squeeze(1)
        for _ in range(len(self.weight) - 1):
            worst = latents[distance.argmax()][None]
            chosen = torch.cat([chosen, worst])
            distance = torch.minimum(distance, torch.cdist(latents, worst).squeeze(1))
        self.weight.copy_(chosen)
        self.sums, self.counts = self.weight.clone(), torch.ones(len(self.weight))

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
    def revive(self, latents: Tensor, generator: torch.Generator, floor: float = 1e-3) -> None:
        """Give a few unused codes to latents that are served far worse than most."""
        dead = (self.counts < floor).nonzero().flatten()
        distance = torch.cdist(latents, self.weight).min(1).values.square()
        badly = distance * (distance > 4 * distance.mean())     # elsewhere a new code would only be a double
        dead = dead[: min(8, int((badly > 0).sum()))]
        if len(dead):
            chosen = torch.multinomial(badly, len(dead), generator=generator)
            self.weight[dead] = latents[chosen]
            self.sums[dead], self.counts[dead] = latents[chosen] * 0.1, 0.1


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


def train(recipe: VQRecipe, out: Path, log=print) -> VQModel:
    """Train, print a line now and then, save to `out` in the diffusers layout every two minutes and at the end.

    First without a codebook, so that the latents mean something; then the codebook starts from them.
    """
    torch.manual_seed(recipe.seed)
    rng, generator = np.random.default_rng(recipe.seed), torch.Generator().manual_seed(recipe.seed)
    world = dataclasses.replace(WORLDS[recipe.world], max_objects=recipe.crowd)
    model = VQModel(**ARCHITECTURE)
    local = LocalEncoder(model)
    codebook = Codebook(model.quantize.embedding, recipe.decay)
    optimiser = Optimiser(model, recipe.lr, recipe.adam_lr, apart=("conv_out", "conv_in", "quant_conv"))
    start, saved, step = time.time(), time.time(), 0
    while (progress := (time.time() - start) / (60 * recipe.minutes)) < 1:
        pixels, shared = pairs(world, recipe.batch // 2, rng)
        latents = model.encode(pixels).latents.permute(0, 2, 3, 1)              # (B, h, w, e)
        flat = latents.detach().reshape(-1, latents.shape[-1])
        spread = latents.var(dim=(0, 1, 2)).mean()          # dividing by it takes away the reward for shrinking
        if progress > recipe.continuous and not codebook.started:
            codebook.start(many_latents(model, world, rng))
        if codebook.started:
            indices = codebook.nearest(flat)
            codes = codebook.weight[indices].view_as(latents)
            used = latents + (codes - latents).detach()                         # straight through
            tidy = (F.mse_loss(latents, codes) + 2 * agreement(latents, codes, shared)) / spread
        else:
            used = latents + recipe.jitter * spread.detach().sqrt() * torch.randn(latents.shape, generator=generator)
            tidy = agreement(latents, latents.detach(), shared) / spread
        made = model.decode(used.permute(0, 3, 1, 2), force_not_quantize=True).sample
        drawn = picture_loss(made, pixels, recipe.object_weight)
        (drawn + recipe.commitment * tidy).backward()
        optimiser.step(warmup_then_decay(progress))
        local.apply()
        if codebook.started:
            codebook.update(flat, indices)
            if step % recipe.revive_every == 0 and progress < 0.6:
                codebook.revive(flat, generator)
        if step % 50 == 0:
            psnr = -10 * F.mse_loss(made.detach().clamp(0, 1), pixels).log10()
            entry = f"step {step:5d}  {progress:4.0%}  loss {drawn:.4f}  psnr {psnr:.1f}  tidy {tidy:.4f}"
            if codebook.started:
                ours, theirs = indices.view(latents.shape[:3]).chunk(2)
                agree = (ours[shared] == theirs[shared]).float().mean()
                entry += f"  codes {int((codebook.counts > 1e-2).sum())}  twins agree {agree:.1%}"
            log(entry)
        if time.time() - saved > 120:
            save(model, out, recipe)
            saved = time.time()
        step += 1
    world = WORLDS[recipe.world]
    merge_doubles(model.eval(), world, rng)
    model = compact(model)
    save(model, out, recipe)
    return model


@torch.no_grad()
def many_latents(model: VQModel, world: World, rng: np.random.Generator, batches: int = 24) -> Tensor:
    """(n, e) latents of fresh pictures."""
    pictures = (pairs(world, 16, rng)[0] for _ in range(batches))
    return torch.cat([model.encode(p).latents.permute(0, 2, 3, 1).flatten(0, 2) for p in pictures])


FAR = 1e3


@torch.no_grad()
def merge_doubles(model: VQModel, world: World, rng: np.random.Generator, tolerance: float = 0.004) -> int:
    """Take out codes whose work another code does as well; returns how many are left.

    A code goes when the pictures that show it, encoded without it, are decoded as well as before (mean absolute
    error in the cells concerned at most `tolerance` above that of the whole codebook). What is left has one code for each meaning, and
    encoding a decoded picture gives the same codes again. Codes out of use lie FAR away, where no latent is.
    """
    weight = model.quantize.embedding.weight
    pixels = torch.cat([pairs(world, 16, rng)[0] for _ in range(16)])
    latents = torch.cat([model.encode(chunk).latents for chunk in pixels.split(64)]).permute(0, 2, 3, 1)
    codes = torch.cdist(latents.flatten(0, 2), weight).argmin(1).view(latents.shape[:3])
    counts = torch.bincount(codes.flatten(), minlength=len(weight))
    weight[counts == 0] = FAR
    whole = torch.cat([decode_error(model, c, p) for c, p in zip(codes.split(64), pixels.split(64), strict=True)])
    for code in counts.argsort().tolist():
        shown = (codes == code).flatten(1).any(1).nonzero().flatten()[:12]
        if not counts[code]:
            continue
        kept = weight[code].clone()
        weight[code] = FAR
        trial = torch.cdist(latents[shown].flatten(0, 2), weight).argmin(1).view(len(shown), *codes.shape[1:])
        worse = decode_error(model, trial, pixels[shown]) - whole[shown]
        if worse[codes[shown] == code].mean() < tolerance:
            codes = torch.cdist(latents.flatten(0, 2), weight).argmin(1).view(codes.shape)
            counts = torch.bincount(codes.flatten(), minlength=len(weight))
        else:
            weight[code] = kept
    return int((counts > 0).sum())


def compact(model: VQModel) -> VQModel:
    """The same model with the codes in use only."""
    weight = model.quantize.embedding.weight
    used = weight[weight.amax(1) < FAR]
    smaller = VQModel(**{**ARCHITECTURE, "num_vq_embeddings": len(used)})
    state = model.state_dict() | {"quantize.embedding.weight": used}
    smaller.load_state_dict(state)
    return smaller.eval()


def decode_error(model: VQModel, codes: Tensor, pixels: Tensor) -> Tensor:
    """Mean absolute error (B, h, w) in the 8x8 pixels of each code."""
    rows = model.quantize.embedding.weight[codes].permute(0, 3, 1, 2)
    made = model.decode(rows, force_not_quantize=True).sample
    return F.avg_pool2d((made - pixels).abs().mean(1), 8)


def save(model: VQModel, out: Path, recipe: VQRecipe) -> None:
    model.save_pretrained(out)
    (out / "recipe.json").write_text(json.dumps(dataclasses.asdict(recipe), indent=1))


if __name__ == "__main__":
    import sys

    train(VQRecipe(minutes=float(sys.argv[1]) if len(sys.argv) > 1 else 10), Path("runs/vq"))
