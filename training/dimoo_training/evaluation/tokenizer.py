"""Gates of an image tokenizer: what it has to keep of a picture before a model is trained on its codes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from dimoo.tasks.base import to_image
from dimoo_training import world as w
from dimoo_training.evaluation.run import PAPER, RIGHT, WRONG
from dimoo_training.evaluation.sitting import plain, read
from dimoo_training.picture_tasks import Map, Picture, paint
from dimoo_training.world.maps import KINDS as MAP_KINDS
from dimoo_training.world.maps import read_map, stamps
from tokenizers_vq import ImageTokenizer

BATCH = 50
GATES = {"parsed": 0.99, "maps_parsed": 0.99, "stability": 0.97}
"""Measure -> the least that a tokenizer has to reach."""
UNITS = dict.fromkeys(("parsed", "maps_parsed", "stability", "usage"), "{:.2%}") | {
    "perplexity": "{:.1f}", "psnr": "{:.1f} dB",
}  # fmt: skip
COLUMNS, EDGE = 8, 2


@dataclass(frozen=True)
class Measured:
    """Of reconstructions of held-out scenes and of their maps.

    parsed: share of pictures that the oracle reads as the scene they were made from. maps_parsed: the same of maps.
    stability: share of codes that a reconstruction is encoded to again. usage: share of the codebook that occurs.
    perplexity: exp of the entropy of the codes, how many equally frequent codes would be as surprising. psnr: in dB.
    """

    parsed: float
    maps_parsed: float
    stability: float
    usage: float
    perplexity: float
    psnr: float

    def missed(self) -> list[str]:
        """The gates that are not reached."""
        return [name for name, least in GATES.items() if getattr(self, name) < least]

    def lines(self) -> list[str]:
        """One a measure, with its gate."""
        found = {name: f"{name:12} {UNITS[name].format(value):>9}" for name, value in asdict(self).items()}
        for name, least in GATES.items():
            found[name] += f"   gate {least:.0%}: {'missed' if name in self.missed() else 'reached'}"
        return list(found.values())

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({name: round(value, 4) for name, value in asdict(self).items()}, indent=1) + "\n")


def samples(count: int, seed: int) -> list[Picture]:
    """`count` held-out scenes, then as many maps, the kinds in turn."""
    rng = np.random.default_rng([seed, 5])
    scenes = [w.test_scene(w.WORLDS["full"], rng) for _ in range(count)]
    return [*scenes, *(Map(MAP_KINDS[i % len(MAP_KINDS)], scene) for i, scene in enumerate(scenes))]


def measure(tokenizer: ImageTokenizer, count: int, seed: int, sheet: Path | None = None) -> Measured:
    """Encode and decode `samples`; the first of them are drawn to `sheet`, originals above reconstructions.

    Raises ValueError for a tokenizer whose 8x8 codes are no picture of the world, 64x64 pixels or a multiple.
    """
    scale, rest = divmod(8 * tokenizer.ratio, w.SIDE_PX)
    if rest or not scale:
        raise ValueError(f"a code of {tokenizer.ratio} pixels a side does not fit the world: 8, 16 ... are allowed")
    pictures, codes, errors = samples(count, seed), [], []
    made: list[Image.Image] = []
    stable = 0
    for start in range(0, len(pictures), BATCH):
        originals = np.stack([paint(p, scale) for p in pictures[start : start + BATCH]])
        pixels = torch.from_numpy(originals).permute(0, 3, 1, 2).float() / 255
        found = tokenizer.encode(pixels)
        drawn = tokenizer.decode(found)
        stable += int((tokenizer.encode(drawn) == found).sum())
        codes.append(found.flatten())
        errors += (drawn - pixels).square().flatten(1).mean(1).tolist()
        made += map(to_image, drawn)
    right = [reads(p, image) for p, image in zip(pictures, made, strict=True)]
    if sheet is not None:
        shown = [k for start in (0, count) for k in range(start, min(start + 4 * COLUMNS, start + count))]
        page([Image.fromarray(paint(pictures[k], scale)) for k in shown], [made[k] for k in shown],
             [right[k] for k in shown]).save(sheet)  # fmt: skip
    every = torch.cat(codes)
    share = torch.bincount(every, minlength=tokenizer.codebook_size).double() / len(every)
    entropy = -(share * share.clamp(min=1e-12).log()).sum().item()
    return Measured(
        float(np.mean(right[:count])), float(np.mean(right[count:])), stable / len(every),
        (share > 0).double().mean().item(), float(np.exp(entropy)), float(-10 * np.log10(max(np.mean(errors), 1e-10))),
    )  # fmt: skip


def reads(picture: Picture, made: Image.Image) -> bool:
    """Whether a reconstruction is read as what it was made from."""
    if isinstance(picture, Map):
        return read_map(plain(made), picture.kind) == stamps(picture.scene, picture.kind)
    return read(made) == picture


def page(originals: Sequence[Image.Image], made: Sequence[Image.Image], right: Sequence[bool]) -> Image.Image:
    """Pairs, the original above its reconstruction, framed green where it is read right and red where not."""
    side = originals[0].width
    width, height = side + 2 * EDGE, 2 * side + 3 * EDGE
    sheet = Image.new("RGB", (COLUMNS * (width + EDGE), -(-len(made) // COLUMNS) * (height + EDGE)), PAPER)
    draw = ImageDraw.Draw(sheet)
    for number, (above, below, good) in enumerate(zip(originals, made, right, strict=True)):
        x, y = number % COLUMNS * (width + EDGE), number // COLUMNS * (height + EDGE)
        draw.rectangle((x, y, x + width - 1, y + height - 1), fill=RIGHT if good else WRONG)
        sheet.paste(above, (x + EDGE, y + EDGE))
        sheet.paste(below, (x + EDGE, y + side + 2 * EDGE))
    return sheet
