"""What a run says about itself: JSON lines, TensorBoard, and a bar with the time left (lines without a terminal)."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

BANDS = 4
"""Losses are also kept by how much of the answer was masked, in quarters."""


class Notes:
    """Collects losses by kind and by mask ratio, and writes their means every `every` steps.

    A resumed run takes back the lines behind the step it starts from.
    """

    def __init__(self, out: Path, start: int, steps: int, every: int, log: Callable[[str], None]):
        from torch.utils.tensorboard import SummaryWriter

        self.path, self.start, self.steps, self.every, self.log = out / "log.jsonl", start, steps, every, log
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        aside = self.path.with_suffix(".part")                      # a last line without its end was torn by a kill
        aside.write_text("".join(line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= start))
        aside.replace(self.path)
        self.board = SummaryWriter(str(out / "tensorboard"), purge_step=start)
        self.bar = tqdm(total=steps, initial=start, unit="step", dynamic_ncols=True, disable=None)
        self.began = time.time()
        self.heard: dict[str, list[Tensor]] = defaultdict(list)

    def hear(self, kind: str, losses: Tensor, ratios: Tensor) -> None:
        """Losses (B,) of a batch, and the share of the answer that was masked in each."""
        self.heard[kind].append(losses)
        band = (ratios * BANDS).long().clamp(max=BANDS - 1)
        for number in band.unique().tolist():
            self.heard[f"{kind}/{100 * number // BANDS}-{100 * (number + 1) // BANDS}%"].append(losses[band == number])

    def turn(self, step: int, **numbers: float) -> None:
        """A step is done."""
        self.bar.update()
        if step % self.every:
            return
        means = {kind: round(torch.cat(losses).mean().item(), 4) for kind, losses in sorted(self.heard.items())}
        rate = (time.time() - self.began) / (step - self.start)
        numbers = {name: round(value, 5) for name, value in numbers.items()}
        entry = {"step": step, **means, **numbers, "seconds_per_step": round(rate, 3)}
        with self.path.open("a") as lines:
            lines.write(json.dumps(entry) + "\n")
        for name, value in entry.items():
            self.board.add_scalar(f"loss/{name}" if name in means else name, value, step)
        kinds = {name: value for name, value in means.items() if "/" not in name}
        self.bar.set_postfix(kinds)
        if self.bar.disable:
            said = "  ".join(f"{name} {value:.3f}" for name, value in kinds.items())
            self.log(f"step {step}  {said}  {(self.steps - step) * rate / 60:.0f} min left")
        self.heard.clear()

    def close(self) -> None:
        self.bar.close()
        self.board.close()
