"""What tests of alignment share: small runs with rewards that a random model can learn."""

import json
from dataclasses import dataclass, replace

import numpy as np
import torch

from dimoo.tasks import Ask, TextToImage
from dimoo_training.rl.recipes import RLRecipe
from dimoo_training.rl.rewards import REWARDS
from dimoo_training.rl.subjects import Request

DRAWN = {"num_inference_steps": 4, "guidance_scale": 0.0, "temperature": 1.0}
MICRO = RLRecipe(
    prompts=2, group=3, iterations=2, settings=DRAWN, read_at=(0.0, 0.5), sft_share=0.0, save_every_seconds=-1,
    sheet_every=1, rewards={"self_confidence": 1.0}, micro_batch=8,
)  # fmt: skip


@dataclass
class Plain:
    """Two prompts without facts: a reward looks at the codes alone."""

    kinds: tuple = ("plain",)
    part: str = "image"
    measure = None

    def draw(self, count, mix, judge, defaults, rng):
        said = ("a circle", "two stars")[:count]
        tasks = [TextToImage(text, 32, 32) if self.part == "image" else Ask(text, length=16) for text in said]
        return [Request(task, "plain", text) for task, text in zip(tasks, said, strict=True)]


def low_codes(samples):
    """Share of codes in the lower half of the codebook."""
    offset = samples.codec.vocab.image_offset
    return [float(np.mean([0 <= i - offset < 32 for i in a.tolist() if i >= offset])) for a in samples.answers]


def even_ids(samples):
    """Share of even ids among the tokens of a text."""
    return [float((answer[1:-1] % 2 == 0).float().mean()) for answer in samples.answers]


def quiet(words):
    pass


def log_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


TOY = replace(
    MICRO, subject=Plain(), rewards={"mine": 1.0}, group=8, iterations=24, lr=3e-3, beta_image=0.0, read_at=None,
    micro_batch=64, norms_by_part=False, sheet_every=99, save_every_seconds=1e9, clip_norm=1.0,
)  # fmt: skip


def sentences(vocab):
    """A supervised batch, always the same."""
    shape = (2, 12)
    ids, weight = torch.full(shape, vocab.image_offset), torch.zeros(shape)
    weight[:, 3:6] = 1.0
    mask = torch.ones(shape, dtype=torch.bool)
    batch = {"input_ids": ids.masked_fill(weight > 0, vocab.mask), "labels": ids, "weight": weight, "key_mask": mask}
    return lambda rng: batch


def without_times(entries):
    return [{k: v for k, v in entry.items() if "seconds" not in k} for entry in entries]


def learnable(monkeypatch):
    """Two rewards for random models: one that can be learned, and one that always has a spread."""
    monkeypatch.setitem(REWARDS, "mine", low_codes)
    monkeypatch.setitem(REWARDS, "even", even_ids)
    monkeypatch.setitem(REWARDS, "turns", lambda samples: [k % 2 for k in range(len(samples))])
