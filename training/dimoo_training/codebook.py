"""The codebook of the image tokenizer: how it starts, moves, and is thinned out in the end."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from diffusers import VQModel
from torch import Tensor


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


FAR = 1e3
"""Where codes out of use lie: no latent is there."""


@torch.no_grad()
def merge_doubles(model: VQModel, pixels: Tensor, tolerance: float = 0.004) -> int:
    """Take out codes whose work the others do as well; returns how many are left.

    A code goes when the pictures that show it, encoded without it, are decoded about as well as with all codes:
    mean absolute error in the cells concerned at most `tolerance` higher. Rare codes are tried first. What is left
    has one code for each meaning, and a decoded picture gives the same codes again.

    Args:
        pixels: (n, 3, H, W) pictures in which every code worth keeping occurs.
    """
    weight = model.quantize.embedding.weight
    latents = torch.cat([model.encode(chunk).latents for chunk in pixels.split(64)]).permute(0, 2, 3, 1)
    codes = nearest(latents, weight)                                            # (n, h, w)
    weight[usage(codes, weight) == 0] = FAR
    whole = torch.cat([decode_error(model, c, p) for c, p in zip(codes.split(64), pixels.split(64), strict=True)])
    for code in usage(codes, weight).argsort().tolist():
        shown = (codes == code).flatten(1).any(1).nonzero().flatten()[:12]      # pictures to try it on
        if not len(shown) or (codes == code).all():                             # the last one stays
            continue
        kept = weight[code].clone()
        weight[code] = FAR
        worse = decode_error(model, nearest(latents[shown], weight), pixels[shown]) - whole[shown]
        if worse[codes[shown] == code].mean() < tolerance:
            codes = nearest(latents, weight)
        else:
            weight[code] = kept
    return int((usage(codes, weight) > 0).sum())


def compact(model: VQModel) -> VQModel:
    """The same model with the codes in use only."""
    weight = model.quantize.embedding.weight
    used = weight[weight.amax(1) < FAR]
    smaller = VQModel.from_config({**model.config, "num_vq_embeddings": len(used)})
    smaller.load_state_dict(model.state_dict() | {"quantize.embedding.weight": used})
    return smaller.eval()


def nearest(latents: Tensor, weight: Tensor) -> Tensor:
    """(..., e) latents -> (...) index of the nearest code."""
    return torch.cdist(latents.flatten(0, -2), weight).argmin(1).view(latents.shape[:-1])


def usage(codes: Tensor, weight: Tensor) -> Tensor:
    """How often each code occurs."""
    return torch.bincount(codes.flatten(), minlength=len(weight))


def decode_error(model: VQModel, codes: Tensor, pixels: Tensor) -> Tensor:
    """Mean absolute error (B, h, w) in the pixels of each code."""
    rows = model.quantize.embedding.weight[codes].permute(0, 3, 1, 2)
    made = model.decode(rows, force_not_quantize=True).sample
    return F.avg_pool2d((made - pixels).abs().mean(1), pixels.shape[-1] // codes.shape[-1])
