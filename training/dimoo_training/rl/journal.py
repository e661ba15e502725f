"""What an alignment run says about itself: a line an iteration, TensorBoard, and a sheet of samples."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dimoo_training.evaluation.run import contact_sheet
from dimoo_training.notes import Notes
from dimoo_training.rl.objectives import spread
from dimoo_training.rl.rewards import Samples
from dimoo_training.rl.rollout import Rollout

SHOWN = ("reward", "oracle", "solved", "ties", "grad_norm")


class Journal(Notes):
    """`Notes` with every iteration as a line."""

    def __init__(self, out: Path, start: int, iterations: int, log: Callable[[str], None]):
        super().__init__(out, start, iterations, 1, lambda words: None)
        self.say = log

    def write(self, step: int, numbers: dict[str, float]) -> None:
        self.turn(step, **numbers)
        short = {name: round(numbers[name], 3) for name in SHOWN if name in numbers}
        self.bar.set_postfix(short)
        if self.bar.disable:
            self.say(f"iteration {step}  " + "  ".join(f"{name} {value:.3f}" for name, value in short.items()))


class Clock:
    """Seconds by phase."""

    def __init__(self):
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[f"seconds/{phase}"] += time.perf_counter() - began

    def take(self) -> dict[str, float]:
        found, self.seconds = dict(self.seconds), defaultdict(float)
        return found


def reward_numbers(rewards: Tensor, parts: dict[str, Tensor], measured: Tensor | None, name: str) -> dict[str, float]:
    """Of rewards (P, G): mean, mean spread inside groups, share of groups without any; each reward alone; and what
    was measured, with how well the reward ranks it (AUC)."""
    numbers = {
        "reward": rewards.mean(), "reward_spread": rewards.std(1, correction=0).mean(),
        "ties": 1 - spread(rewards).float().mean(), **{f"reward/{part}": x.mean() for part, x in parts.items()},
    }  # fmt: skip
    if measured is not None:
        right = measured > 0.5
        numbers |= {name: measured.mean(), f"{name}_auc": auc(rewards.flatten(), right)}
        numbers |= {f"{name}_auc/{part}": auc(x, right) for part, x in parts.items()} if len(parts) > 1 else {}
    return {key: float(value) for key, value in numbers.items()}


def auc(scores: Tensor, right: Tensor) -> float:
    """How often a right one scores higher than a wrong one, ties half; nan when there are only one sort."""
    pairs = scores[right][:, None] - scores[~right][None]
    return float((pairs > 0).float().add((pairs == 0).float() / 2).mean()) if pairs.numel() else float("nan")


def entropy_numbers(rollout: Rollout) -> dict[str, float]:
    """Mean entropy of the tokens that each step wrote, in nats."""
    entropy, _ = rollout.entropies()
    return {f"entropy/step_{number:02d}": float(value) for number, value in enumerate(entropy.mean(0))}


def save_sheet(out: Path, step: int, samples: Samples, part: str, rewards: Tensor, measured: Tensor | None) -> None:
    """The samples of an iteration: pictures framed by what was measured, else by a reward above 0.5; or texts."""
    good = (rewards.flatten() if measured is None else measured) > 0.5
    folder = out / "sheets"
    folder.mkdir(parents=True, exist_ok=True)
    if part == "text":
        lines = [f"{'+' if g else '-'} {r.truth.text} -> {text}"
                 for r, text, g in zip(samples.requests, samples.texts, good.tolist(), strict=True)]  # fmt: skip
        (folder / f"{step:05d}.txt").write_text("\n".join(lines) + "\n", "utf-8")
        return
    shown = [(r.task.prompt, picture, g) for r, picture, g in
             zip(samples.requests, samples.pictures, good.tolist(), strict=True)]  # fmt: skip
    aside = folder / f"{step:05d}.part"
    contact_sheet(shown).save(aside, format="PNG")
    aside.replace(folder / f"{step:05d}.png")


def mean_over_processes(everyone: list[dict[str, float]]) -> dict[str, float]:
    """Each number as the mean over the processes that have it; what is no number is left out."""
    names = dict.fromkeys(name for one in everyone for name in one)
    found = {name: [one[name] for one in everyone if np.isfinite(one.get(name, np.nan))] for name in names}
    return {name: float(torch.tensor(values).mean()) for name, values in found.items() if values}
