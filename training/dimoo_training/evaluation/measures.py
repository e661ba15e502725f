"""What is measured: functions from a sitting and the facts of one part to values by name, in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from PIL import Image

from dimoo.tasks import Ask, Edit, TextToImage
from dimoo_training import world as w
from dimoo_training.evaluation.facts import Asked, Mapped
from dimoo_training.evaluation.sitting import Sitting, plain, read
from dimoo_training.picture_tasks import MAPS, Map
from dimoo_training.puzzles import PUZZLES, sudoku
from dimoo_training.world.maps import read_map, stamps

Outcomes = dict[str, list[float]]
"""Name of a score -> the value of every item, 0 to 1."""
Facts = dict[str, list]

ANSWER_LENGTH, CAPTION_LENGTH, PUZZLE_LENGTH = 16, 48, 32
EDIT_OF = {kind: name for name, kind in MAPS.items()}
"""Maps of the world -> `canny`, `mask`, `depth`, as tasks call them."""


def t2i(sitting: Sitting, facts: Facts) -> Outcomes:
    """GenEval's question: are exactly the things of the caption there, as it says?"""
    found: Outcomes = {}
    for family, captions in facts.items():
        made = sitting.pictures([TextToImage(c.text, sitting.side, sitting.side) for c in captions])
        sitting.drawn += made
        found[f"t2i_{family}"] = [float(c.claim.holds(read(m))) for c, m in zip(captions, made, strict=True)]
        sitting.show([c.text for c in captions], made, found[f"t2i_{family}"])
    return found


def answered(sitting: Sitting, asked: list[Asked], images: list[Image.Image], choice: bool = False) -> list[float]:
    """Whether each question about each image is answered word for word, or with the right letter."""
    pairs = [a.question.as_choice() if choice else (a.question.text, a.question.answer) for a in asked]
    tasks = [Ask(text, [image], length=ANSWER_LENGTH) for (text, _), image in zip(pairs, images, strict=True)]
    return [float(said == answer) for said, (_, answer) in zip(sitting.answers(tasks), pairs, strict=True)]


def qa(sitting: Sitting, facts: Facts) -> Outcomes:
    """Answers word for word: on true pictures, with lettered options, on a blank picture, on the model's own."""
    found: Outcomes = {}
    for kind, asked in facts.items():
        found[f"qa_kind_{kind}"] = answered(sitting, asked, [sitting.picture(a.scene) for a in asked])
    every = [a for asked in facts.values() for a in asked]
    found["qa_choice"] = answered(sitting, every, [sitting.picture(a.scene) for a in every], choice=True)
    blank = sitting.picture(w.Scene((), "white"))
    found["qa_blank_accuracy"] = answered(sitting, every, [blank] * len(every))
    own = _own_questions(sitting)
    if own:
        found["qa_own_accuracy"] = answered(sitting, [a for a, _ in own], [image for _, image in own])
    return found


def _own_questions(sitting: Sitting) -> list[tuple[Asked, Image.Image]]:
    """A question of every kind in turn about each of the model's drawings that the oracle can read."""
    rng, asked = np.random.default_rng([sitting.seed, 77]), []
    for number, image in enumerate(sitting.drawn):
        scene = read(image)
        if scene is None or not 1 <= len(scene.objects) <= 4:
            continue
        kinds = tuple(w.QUESTION_KINDS)
        question = w.ask(scene, kinds[number % len(kinds)], rng) or w.sample_question(scene, rng)
        asked.append((Asked(scene, question), image))
    return asked


def caption(sitting: Sitting, facts: Facts) -> Outcomes:
    """Recall of the facts of the full report: each object by name, each with its place, and the background."""
    scenes = facts["scene"]
    said = sitting.answers([Ask("describe the picture", [sitting.picture(s)], length=CAPTION_LENGTH) for s in scenes])
    return {"caption_recall": [recalled(w.report(s).text, text) for s, text in zip(scenes, said, strict=True)]}


def recalled(truth: str, said: str) -> float:
    """Share of the facts of one report found in another."""
    wanted, got = _facts_of(truth), _facts_of(said)
    return sum((wanted & got).values()) / wanted.total()


def _facts_of(report: str) -> Counter[str]:
    body, _, background = report.partition(" on ")
    phrases = body.replace(" and ", ", ").split(", ")
    return Counter([f"on {background}", *(p for phrase in phrases for p in (phrase, phrase.partition(" in the ")[0]))])


def edit(sitting: Sitting, facts: Facts) -> Outcomes:
    """Whether the asked change is there, and whether also everything else stayed."""
    found: Outcomes = {}
    for kind, edits in facts.items():
        made = sitting.pictures([Edit(e.text, [sitting.picture(e.source)]) for e in edits])
        held = [w.edit_holds(e, read(m)) for e, m in zip(edits, made, strict=True)]
        found[f"edit_{kind}_target"] = [float(fact) for fact, _ in held]
        found[f"edit_{kind}_preserved"] = [float(fact and rest) for fact, rest in held]
        sitting.show([e.text for e in edits], made, found[f"edit_{kind}_preserved"])
    return found


def dense(sitting: Sitting, facts: Facts) -> Outcomes:
    """F1 over cells of predicted maps, and whether a picture drawn from a map has its shapes and its words' facts."""
    found: Outcomes = {}
    for kind, items in facts.items():
        name = {"edges": "edge"}.get(kind, kind)
        maps = sitting.pictures([Edit("", [sitting.picture(i.scene)], edit=f"{EDIT_OF[kind]}_dense") for i in items])
        found[f"{name}_f1"] = [
            f1(stamps(i.scene, kind), read_map(plain(m), kind)) for i, m in zip(items, maps, strict=True)
        ]
        sitting.show([f"{kind} of a picture"] * len(items), maps, found[f"{name}_f1"])
        given = [sitting.picture(Map(kind, i.scene)) for i in items]
        made = sitting.pictures([
            Edit(i.caption.text, [shown], edit=f"{EDIT_OF[kind]}_control")
            for i, shown in zip(items, given, strict=True)
        ])  # fmt: skip
        found[f"from_{name}"] = [float(_follows(i, read(m))) for i, m in zip(items, made, strict=True)]
        sitting.show([i.caption.text for i in items], made, found[f"from_{name}"])
    return found


def f1(truth: dict, found: dict) -> float:
    """Harmonic mean of precision and recall over cells that show the right thing."""
    hits = sum(found.get(cell) == shown for cell, shown in truth.items())
    return 2 * hits / (len(truth) + len(found))


def _follows(item: Mapped, scene: w.Scene | None) -> bool:
    return item.caption.claim.holds(scene) and stamps(scene, "mask") == stamps(item.scene, "mask")


def reference(sitting: Sitting, facts: Facts) -> Outcomes:
    """Whether the subject, or background and palette of the style, are in the answer as asked."""
    kinds = {"subject": "subject_driven", "style": "image_ref_transfer"}
    found: Outcomes = {}
    for kind, items in facts.items():
        shown = [[sitting.picture(source) for source in r.sources] for r in items]
        made = sitting.pictures([Edit(r.text, s, edit=kinds[kind]) for r, s in zip(items, shown, strict=True)])
        found[f"{kind}_facts"] = [float(r.claim.holds(read(m))) for r, m in zip(items, made, strict=True)]
        sitting.show([r.text or "in the style of the second" for r in items], made, found[f"{kind}_facts"])
    return found


def puzzle(sitting: Sitting, facts: Facts) -> Outcomes:
    """Text problems, one token a step."""
    found: Outcomes = {}
    names = {"sudoku": "sudoku_grids"}
    for kind, problems in facts.items():
        tasks = [Ask(p.text, length=PUZZLE_LENGTH) for p in problems]
        said = sitting.answers(tasks, num_inference_steps=PUZZLE_LENGTH, block_length=PUZZLE_LENGTH)
        right = PUZZLES[kind].right
        found[names.get(kind, kind)] = [float(right(p, s)) for p, s in zip(problems, said, strict=True)]
        if kind == "sudoku":
            found["sudoku_cells"] = [sudoku.cells_right(p, s) for p, s in zip(problems, said, strict=True)]
    return found


MEASURES: dict[str, Callable[[Sitting, Facts], Outcomes]] = {
    "t2i": t2i, "qa": qa, "caption": caption, "edit": edit, "map": dense, "reference": reference, "puzzle": puzzle,
}  # fmt: skip
"""Part -> how it is scored. The order matters: questions about own pictures come after drawing."""
