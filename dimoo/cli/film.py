"""A picture as it comes into being: a few frames of its steps, side by side."""

from __future__ import annotations

import numpy as np
from PIL import Image
from torch import Tensor

from dimoo.images import strip
from dimoo.tasks import Codec, Task

FRAMES = 7


class Film:
    """Collects the canvas of one picture after each step, from the empty one on."""

    def __init__(self, codec: Codec, task: Task):
        self.codec, self.task = codec, task
        self.answers = [task.prepare(codec).answer]

    def take(self, answer: Tensor) -> None:
        self.answers.append(answer[: len(self.answers[0])].cpu().clone())

    def frame(self, number: int) -> Image.Image:
        """The unfinished picture after `number` steps; what is open is grey."""
        return self.task.preview(self.codec, self.answers[number])

    def strip(self, frames: int = FRAMES) -> Image.Image:
        """Frames at even distances, first and last included, each under its step."""
        steps = sorted({round(at) for at in np.linspace(0, len(self.answers) - 1, frames)})
        return strip([self.frame(step) for step in steps], captions=[f"step {step}" for step in steps], scale=2)
