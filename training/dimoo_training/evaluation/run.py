"""Running the measures, and the sheet of what was drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from dimoo import DiMOOPipeline
from dimoo_training.evaluation.facts import EvaluationSet, committed_facts
from dimoo_training.evaluation.measures import MEASURES
from dimoo_training.evaluation.scores import Scores
from dimoo_training.evaluation.sitting import Sitting

COLUMNS, SIDE, EDGE = 16, 64, 3
RIGHT, WRONG, PAPER = (34, 139, 84), (214, 69, 65), (255, 255, 255)


def evaluate(
    pipeline: DiMOOPipeline, facts: EvaluationSet, seed: int = 0, settings: dict | None = None,
    log: Callable[[str], None] = print, sheet: Path | None = None, preset: str = "exact",
) -> Scores:  # fmt: skip
    """Score a pipeline on the given facts; prints every score, and draws the contact sheet to `sheet`.

    Args:
        settings: how pictures are sampled where it is not by the checkpoint's defaults.
        preset: for pictures and answers.
    """
    pipeline.set_progress_bar_config(disable=True)
    sitting, outcomes = Sitting(pipeline, seed, settings or {}, preset), {}
    for part, kinds in facts.items():
        measured = MEASURES[part](sitting, kinds)
        outcomes |= measured
        for score in Scores.of(measured).values():
            log(str(score))
    if sheet is not None:
        contact_sheet(sitting.sheet).save(sheet)
    return Scores.of(outcomes)


def measured(pipeline: DiMOOPipeline, part: str, count: int, seed: int, preset: str) -> dict[str, list[float]]:
    """The values of one part on the first `count` committed facts of each kind, sampled by a preset."""
    return MEASURES[part](Sitting(pipeline, seed, preset=preset), committed_facts([part], count)[part])


def contact_sheet(shown: Sequence[tuple[str, Image.Image, bool]]) -> Image.Image:
    """Every picture, framed green where it is right and red where it is not."""
    cell = SIDE + 2 * EDGE
    rows = -(-len(shown) // COLUMNS)
    page = Image.new("RGB", (COLUMNS * cell, max(1, rows) * cell), PAPER)
    draw = ImageDraw.Draw(page)
    for number, (_, image, right) in enumerate(shown):
        x, y = number % COLUMNS * cell, number // COLUMNS * cell
        draw.rectangle((x, y, x + cell - 1, y + cell - 1), fill=RIGHT if right else WRONG)
        page.paste(image.resize((SIDE, SIDE)), (x + EDGE, y + EDGE))
    return page
