"""The held-out facts a checkpoint is scored on: drawn from a seed, or the committed file of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dimoo.assets import asset
from dimoo_training import world as w
from dimoo_training.evaluation.as_json import from_json, to_json
from dimoo_training.puzzles import PUZZLES
from dimoo_training.world.maps import KINDS as MAP_KINDS

FAMILIES = ("single", "two", "counting", "colors", "position", "attributes")
COMMITTED, PER_KIND = "evaluation/facts.json", 40


@dataclass(frozen=True)
class Asked:
    """A question about a scene."""

    scene: w.Scene
    question: w.Question


@dataclass(frozen=True)
class Mapped:
    """A scene and the kind of map asked of it, or given of it together with a caption."""

    scene: w.Scene
    kind: str
    caption: w.Caption


EvaluationSet = dict[str, dict[str, list[Any]]]
"""part -> kind -> items; parts and kinds are those of SOURCES."""

Draw = Callable[[w.World, np.random.Generator], Any]


def _asked(kind: str) -> Draw:
    def draw(world: w.World, rng: np.random.Generator) -> Asked:
        while True:
            scene = w.test_scene(world, rng)
            if question := w.ask(scene, kind, rng, world):
                return Asked(scene, question)

    return draw


def _mapped(kind: str) -> Draw:
    def draw(world: w.World, rng: np.random.Generator) -> Mapped:
        scene = w.test_scene(world, rng)
        return Mapped(scene, kind, w.describe(scene, rng, sized=False))

    return draw


SOURCES: dict[str, dict[str, Draw]] = {
    "t2i": {family: lambda world, rng, f=family: w.test_caption(world, f, rng) for family in FAMILIES},
    "qa": {kind: _asked(kind) for kind in w.QUESTION_KINDS},
    "caption": {"scene": w.test_scene},
    "edit": {kind: lambda world, rng, k=kind: w.test_edit(world, rng, (k,)) for kind in w.EDIT_KINDS},
    "map": {kind: _mapped(kind) for kind in MAP_KINDS},
    "reference": {kind: lambda world, rng, k=kind: w.test_reference(world, k, rng) for kind in w.REFERENCES},
    "puzzle": {name: lambda world, rng, p=puzzle: p.sample(rng, held_out=True) for name, puzzle in PUZZLES.items()},
}
"""How the facts of every part and kind are drawn. Their order gives each kind its own random stream."""


def draw_facts(world: w.World, seed: int, per_kind: int, parts: Sequence[str] = tuple(SOURCES)) -> EvaluationSet:
    """`per_kind` held-out items of every kind; the first n of a kind do not depend on `per_kind`."""
    drawn: EvaluationSet = {}
    for part in parts:
        for kind, draw in SOURCES[part].items():
            if kind == "resize" and len(world.sizes) < 2:
                continue
            rng = np.random.default_rng([seed, list(SOURCES).index(part), list(SOURCES[part]).index(kind)])
            drawn.setdefault(part, {})[kind] = [draw(world, rng) for _ in range(per_kind)]
    return drawn


def committed_facts(parts: Sequence[str] = tuple(SOURCES), per_kind: int | None = None) -> EvaluationSet:
    """The facts every published score is about; the first `per_kind` of each kind (None: all)."""
    stored = json.loads(asset(COMMITTED).read_text())
    return {part: {kind: from_json(items[:per_kind]) for kind, items in stored[part].items()} for part in parts}


def write_facts(facts: EvaluationSet, path: Path) -> None:
    """One line an item, so that a change is seen as what it is."""
    lines = []
    for part, kinds in facts.items():
        listed = []
        for kind, items in kinds.items():
            rows = ",\n".join("   " + json.dumps(to_json(item)) for item in items)
            listed.append(f'  "{kind}": [\n{rows}\n  ]')
        lines.append(f' "{part}": {{\n' + ",\n".join(listed) + "\n }")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    aside.replace(path)


if __name__ == "__main__":
    write_facts(draw_facts(w.WORLDS["full"], seed=0, per_kind=PER_KIND), asset("evaluation") / Path(COMMITTED).name)
