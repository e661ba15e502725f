"""Scores: a pipeline that knows everything gets 1.0, one that knows nothing or overdoes it gets 0.0."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from dimoo.tasks import Ask, TextToImage
from dimoo_training import evaluation
from dimoo_training import world as w
from dimoo_training.evaluation.measures import EDIT_OF, f1, recalled
from dimoo_training.evaluation.scores import Scores, bootstrap
from dimoo_training.evaluation.sitting import Sitting, chunks, plain, read
from dimoo_training.picture_tasks import Map, paint

FULL = w.WORLDS["full"]
NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
FLAT = (
    "t2i_mean", "t2i_single", "t2i_two", "t2i_counting", "t2i_colors", "t2i_position", "t2i_attributes", "qa_accuracy",
    "qa_own_accuracy", "qa_blank_accuracy", "caption_recall", "edit_target", "edit_preserved", "edge_f1", "mask_f1",
    "sudoku_grids", "countdown",
)  # fmt: skip


@pytest.fixture(scope="module")
def facts():
    return evaluation.draw_facts(FULL, seed=3, per_kind=3)


class Knowing:
    """Stands in for the pipeline, and knows what is right: it looks the task up among the facts.

    `spoil` changes the pixels, `slip` the words it answers with.
    """

    def __init__(self, facts, spoil=lambda pixels: pixels, slip=lambda answer: answer, side=64):
        self.facts, self.spoil, self.slip, self.calls = facts, spoil, slip, []
        self.defaults, self.rng = SimpleNamespace(height=side), np.random.default_rng(0)

    def set_progress_bar_config(self, **config):
        self.quiet = config["disable"]

    def run(self, tasks, **settings):
        self.calls.append((tasks, settings))
        if isinstance(tasks[0], Ask):
            return SimpleNamespace(texts=[self.slip(self.answer(task)) for task in tasks])
        made = [paint(self.drawn(task), self.defaults.height // 64) for task in tasks]
        return SimpleNamespace(images=[Image.fromarray(self.spoil(pixels)) for pixels in made])

    def drawn(self, task):
        if isinstance(task, TextToImage):
            caption = next(c for kind in self.facts["t2i"].values() for c in kind if c.text == task.prompt)
            return w.scene_for(caption.claim, FULL, self.rng)
        shown = [plain(image) for image in task.images]
        for kind, items in self.facts.get("map", {}).items():
            for item in items:
                if task.edit == f"{EDIT_OF[kind]}_dense" and w.parse(shown[0]).scene == item.scene:
                    return Map(kind, item.scene)
                given = (shown[0] == paint(Map(kind, item.scene))).all()
                if task.edit == f"{EDIT_OF[kind]}_control" and given and task.prompt == item.caption.text:
                    return item.scene
        sources = [w.parse(pixels).scene for pixels in shown]
        known = [e for part in ("edit", "reference") for kind in self.facts.get(part, {}).values() for e in kind]
        return next(e.target for e in known if e.text == task.prompt and list(_sources(e)) == sources)

    def answer(self, task):
        if not task.images:
            return next(p.answer for kind in self.facts["puzzle"].values() for p in kind if p.text == task.question)
        scene = read(task.images[0])
        if task.question == "describe the picture":
            return w.report(scene).text
        for kind in self.facts["qa"].values():
            for asked in kind:
                if asked.scene == scene:
                    choices = dict([(asked.question.text, asked.question.answer), asked.question.as_choice()])
                    if task.question in choices:
                        return choices[task.question]
        return "?"                                                  # the blank picture, or one of its own


def _sources(fact):
    return fact.sources if isinstance(fact, w.Reference) else (fact.source,)


def quiet(words):
    pass


@pytest.mark.parametrize("side", [64, 128])
def test_who_knows_everything_is_right(facts, side, tmp_path):
    if side == 128:                                                 # pictures of a larger scale are read the same
        facts = {part: {kind: items[:1] for kind, items in kinds.items()} for part, kinds in facts.items()}
    pipeline, said = Knowing(facts, side=side), []
    scores = evaluation.evaluate(pipeline, facts, log=said.append, sheet=tmp_path / "sheet.png")
    assert pipeline.quiet and set(FLAT) <= set(scores)
    unknown = {"qa_blank_accuracy", "qa_own_accuracy"}
    assert {name for name, score in scores.items() if score.mean != 1} == unknown & set(scores)
    assert len(said) >= len(scores) - 1
    scores.write(tmp_path / "scores.json")
    flat = json.loads((tmp_path / "scores.json").read_text())
    assert set(flat) == {name + end for name in scores for end in ("", "_low", "_high")}
    assert flat["t2i_mean"] == flat["edge_f1_low"] == 1.0
    pictures = sum(len(tasks) for tasks, _ in pipeline.calls if not isinstance(tasks[0], Ask))
    assert Image.open(tmp_path / "sheet.png").height == 70 * -(-pictures // 16)


def test_who_is_wrong_gets_nothing(facts):
    parts = {part: facts[part] for part in ("t2i", "edit", "map", "reference", "puzzle")}
    scores = evaluation.evaluate(
        Knowing(facts, spoil=lambda pixels: NOISE, slip=lambda answer: answer + "!"), parts, log=quiet
    )
    assert set(scores) >= {"t2i_mean", "edit_target", "edge_f1", "subject_facts", "sudoku_cells"}
    assert all(score.mean == 0 for score in scores.values())


def test_preserving_is_more_than_the_asked_change(facts):
    """A stranger in a free cell leaves most changes and no preservation."""
    def stranger(pixels):
        scene = w.parse(pixels).scene
        more = w.Object("ring", "pink", "small", scene.free_cells()[-1])
        return w.render(w.Scene((*scene.objects, more), scene.background))

    scores = evaluation.evaluate(Knowing(facts, spoil=stranger), {"edit": facts["edit"]}, log=quiet)
    assert scores["edit_preserved"].mean == 0 and scores["edit_target"].mean > 0.5


def test_questions_need_the_exact_word(facts):
    only = {"qa": facts["qa"]}
    scores = evaluation.evaluate(Knowing(facts, slip=lambda a: {"yes": "no", "no": "yes"}.get(a, a)), only, log=quiet)
    wrong = {name for name, score in scores.items() if score.mean == 0}
    assert wrong == {"qa_kind_exists", "qa_kind_relation", "qa_kind_compare", "qa_blank_accuracy"}
    assert scores["qa_accuracy"].mean == pytest.approx(5 / 8)       # the mean of kinds
    assert scores["qa_choice"].mean == 1.0                          # letters are not yes and no
    assert "qa_own_accuracy" not in scores                          # nothing was drawn


def test_own_pictures_are_asked_about_by_what_the_oracle_sees(facts):
    pipeline = Knowing(facts, slip=lambda answer: "yes")
    scores = evaluation.evaluate(pipeline, {"t2i": facts["t2i"], "qa": facts["qa"]}, log=quiet)
    assert scores["qa_own_accuracy"].count == 18 and 0 < scores["qa_own_accuracy"].mean < 0.6


def test_settings_are_for_pictures_and_samples_are_numbered(facts):
    pipeline = Knowing(facts)
    sitting = Sitting(pipeline, seed=5, settings={"temperature": 0.5})
    sitting.pictures([TextToImage(facts["t2i"]["two"][0].text, 64, 64)] * 20)
    sitting.answers([Ask(facts["puzzle"]["countdown"][0].text)] * 17, block_length=3)
    assert all(settings.pop("preset") == "exact" for _, settings in pipeline.calls)
    assert [(len(tasks), settings) for tasks, settings in pipeline.calls] == [
        (16, {"seed": 5, "index": 0, "temperature": 0.5}), (4, {"seed": 5, "index": 16, "temperature": 0.5}),
        (16, {"seed": 5, "index": 0, "block_length": 3}), (1, {"seed": 5, "index": 16, "block_length": 3}),
    ]  # fmt: skip


def test_a_model_of_other_pictures_is_refused(tiny, facts):
    with pytest.raises(ValueError, match="draws 32 pixels a side, the world has 64"):
        evaluation.evaluate(tiny, facts, log=quiet)


def test_a_real_pipeline_can_be_scored(tiny, facts):
    tiny.set_defaults(replace(tiny.defaults, height=64, width=64, steps=1, text_steps=1, block_length=16))
    few = {part: {kind: facts[part][kind][:1] for kind in list(facts[part])[:1]} for part in ("t2i", "edit", "map")}
    scores = evaluation.evaluate(tiny, few, log=quiet)
    assert set(scores) == {"t2i_single", "t2i_mean", "edit_recolor_target", "edit_recolor_preserved", "edit_target",
                           "edit_preserved", "edge_f1", "from_edge"}  # fmt: skip
    assert np.mean([score.mean for score in scores.values()]) < 0.3     # its weights are random


def test_captions_are_scored_by_their_facts():
    scene = w.Scene((w.Object("star", "red", "large", (0, 0)), w.Object("ring", "blue", "large", (3, 3))), "gray")
    truth = w.report(scene).text
    assert recalled(truth, truth) == 1 and recalled(truth, "") == 0
    turned = "a blue ring in the bottom right and a red star in the top left on a gray background"
    assert recalled(truth, turned) == 1
    assert recalled(truth, truth.replace("top left", "top right")) == pytest.approx(4 / 5)
    assert recalled(truth, truth.replace("gray", "white")) == pytest.approx(4 / 5)
    assert recalled(truth, truth.replace("red", "pink")) == pytest.approx(3 / 5)


def test_f1_counts_what_is_missing_and_what_is_too_much():
    truth = {(0, 0): "a", (1, 1): "b"}
    assert f1(truth, truth) == 1 and f1(truth, {}) == 0
    assert f1(truth, {(0, 0): "a"}) == pytest.approx(2 / 3)
    assert f1(truth, truth | {(2, 2): "c", (3, 3): None}) == pytest.approx(4 / 6)
    assert f1(truth, {(0, 0): "b", (1, 1): None}) == 0


def test_the_interval_is_that_of_a_share_and_means_are_of_kinds():
    rng = np.random.default_rng(0)
    for share in (0.1, 0.5):
        found = bootstrap("x", [np.arange(400) < 400 * share], rng, rounds=4000)
        half = 1.96 * (share * (1 - share) / 400) ** 0.5
        assert found.mean == pytest.approx(share) and found.count == 400
        assert found.low == pytest.approx(share - half, abs=0.007)
        assert found.high == pytest.approx(share + half, abs=0.007)
    two = bootstrap("x", [[1.0] * 30, [0.0] * 10], rng)
    assert (two.mean, two.low, two.high) == (0.5, 0.5, 0.5)
    outcomes = {"t2i_single": [1.0, 0.0], "t2i_two": [1.0, 1.0]}
    whole = Scores.of(outcomes)
    assert whole["t2i_mean"].mean == 0.75
    assert Scores.of({"t2i_two": [1.0, 1.0], "t2i_single": [1.0, 0.0]})["t2i_single"] == whole["t2i_single"]


def test_chunks_keep_the_order_and_leave_nothing_out():
    assert list(chunks(list(range(5)), 2)) == [[0, 1], [2, 3], [4]]
    assert [len(chunk) for chunk in chunks(list(range(32)))] == [16, 16] and list(chunks([])) == []
