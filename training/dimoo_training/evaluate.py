"""Scores of a checkpoint on held-out facts, read by the oracle: drawings by family, questions and edits by kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image

from dimoo import DiMOOPipeline
from dimoo.tasks import Ask, Edit
from dimoo_training import world as w

DRAWN = ("single", "two", "colors", "counting", "position", "attributes")
ASKED = ("exists", "color", "shape", "count", "where", "relation", "compare", "background")
EDITED = ("recolor", "remove", "reshape", "add", "move", "background", "swap")


@dataclass(frozen=True)
class Score:
    """Share right of `count` samples, with a 95% bootstrap interval."""

    task: str
    kind: str
    right: float
    low: float
    high: float
    count: int


def bootstrap(right: Sequence[bool], rng: np.random.Generator, rounds: int = 1000) -> tuple[float, float, float]:
    """Mean and 95% percentile interval over resampled items."""
    values = np.asarray(right, dtype=float)
    means = values[rng.integers(0, len(values), (rounds, len(values)))].mean(1)
    return float(values.mean()), float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def chunks(items: list, size: int = 16) -> Iterator[list]:
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk


def picture(scene: w.Scene) -> Image.Image:
    return Image.fromarray(w.render(scene))


def drawn(pipeline: DiMOOPipeline, world: w.World, kind: str, count: int, seed: int, **settings) -> list[bool]:
    """Whether the oracle reads each drawing of a held-out caption as right."""
    rng = np.random.default_rng([seed, DRAWN.index(kind)])
    captions = [w.test_caption(world, kind, rng) for _ in range(count)]
    right = []
    for number, chunk in enumerate(chunks(captions)):
        made = pipeline.generate([c.text for c in chunk], seed=seed, index=16 * number, **settings).images
        scenes = [w.parse(np.asarray(image)).scene for image in made]
        right += [c.claim.holds(scene) for c, scene in zip(chunk, scenes, strict=True)]
    return right


def asked(pipeline: DiMOOPipeline, world: w.World, kind: str, count: int, seed: int, **settings) -> list[bool]:
    """Whether each question about a held-out scene is answered right, word by word."""
    rng = np.random.default_rng([seed, 100 + ASKED.index(kind)])
    drafts = ((w.ask(scene, kind, rng, world), scene) for scene in iter(lambda: w.test_scene(world, rng), None))
    questions = list(islice((draft for draft in drafts if draft[0] is not None), count))
    right = []
    for number, chunk in enumerate(chunks(questions)):
        tasks = [Ask(question.text, [picture(scene)], length=16) for question, scene in chunk]
        answers = pipeline.run(tasks, seed=seed, index=16 * number, **settings).texts
        right += [answer == question.answer for answer, (question, _) in zip(answers, chunk, strict=True)]
    return right


def edited(pipeline: DiMOOPipeline, world: w.World, kind: str, count: int, seed: int, **settings) -> list[bool]:
    """Whether each edit of a held-out scene did what was asked and left the rest alone."""
    rng = np.random.default_rng([seed, 200 + EDITED.index(kind)])
    edits = [w.test_edit(world, rng, (kind,)) for _ in range(count)]
    right = []
    for number, chunk in enumerate(chunks(edits)):
        tasks = [Edit(edit.text, [picture(edit.source)]) for edit in chunk]
        made = pipeline.run(tasks, seed=seed, index=16 * number, **settings).images
        right += [all(w.edit_holds(e, w.parse(np.asarray(m)).scene)) for e, m in zip(chunk, made, strict=True)]
    return right


PARTS: dict[str, tuple[Callable[..., list[bool]], tuple[str, ...]]] = {
    "draw": (drawn, DRAWN), "ask": (asked, ASKED), "edit": (edited, EDITED),
}  # fmt: skip


def evaluate(
    pipeline: DiMOOPipeline, world: w.World, per_kind: int = 40, seed: int = 0, parts: Sequence[str] = tuple(PARTS),
    settings: dict[str, dict] | None = None, log=print,
) -> list[Score]:  # fmt: skip
    """Score `per_kind` samples of every kind; `settings` per part go to the pipeline. Prints a row for each kind."""
    rng, scores = np.random.default_rng(seed), []
    pipeline.set_progress_bar_config(disable=True)
    for part in parts:
        measure, kinds = PARTS[part]
        for kind in kinds:
            right = measure(pipeline, world, kind, per_kind, seed, **(settings or {}).get(part, {}))
            scores.append(Score(part, kind, *bootstrap(right, rng), len(right)))
            log(row(scores[-1]))
        mine = [score for score in scores if score.task == part]
        log(f"{part:5} {'mean':11} {np.mean([s.right for s in mine]):6.1%}")
    return scores


def row(score: Score) -> str:
    return f"{score.task:5} {score.kind:11} {score.right:6.1%}  [{score.low:.1%}, {score.high:.1%}]  n={score.count}"


def write(scores: Sequence[Score], path: Path) -> None:
    """Flat JSON: `draw_single`, `draw_single_low`, ..."""
    flat = {}
    for s in scores:
        name = f"{s.task}_{s.kind}"
        flat |= {name: s.right, f"{name}_low": s.low, f"{name}_high": s.high, f"{name}_count": s.count}
    path.write_text(json.dumps(flat, indent=1) + "\n")


def main(
    model: str = "dimoo-tiny",
    per_kind: Annotated[int, typer.Option(help="Samples of each kind.")] = 40,
    seed: int = 0,
    part: Annotated[list[str] | None, typer.Option(help="draw, ask, edit; all by default.")] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Also write the scores to this file.")] = None,
) -> None:
    """Score a checkpoint on held-out facts; the oracle reads its pictures."""
    scores = evaluate(DiMOOPipeline.from_pretrained(model), w.WORLDS["first"], per_kind, seed, part or tuple(PARTS))
    if out:
        write(scores, out)


if __name__ == "__main__":
    typer.run(main)
