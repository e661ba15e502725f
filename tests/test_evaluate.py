"""Scores: a pipeline that knows everything gets 1.0, one that knows nothing or overdoes it gets 0.0."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from dimoo_training.evaluate import ASKED, DRAWN, EDITED, asked, bootstrap, chunks, drawn, edited, evaluate, write
from PIL import Image

from dimoo.tasks import Ask, Edit
from dimoo_training import world as w

WORLD = w.WORLDS["first"]
NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))


def picture(scene):
    return Image.fromarray(w.render(scene))


def scene_of(image):
    return w.parse(np.asarray(image)).scene


class Knowing:
    """Stands in for the pipeline, and knows what is right: it has heard the facts when they were drawn.

    `paint(scene)`, `change(edit)` and `say(answer)` turn what is right into what it gives.
    """

    def __init__(self, monkeypatch, paint=picture, change=lambda edit: picture(edit.target), say=lambda answer: answer):
        self.paint, self.change, self.say = paint, change, say
        self.claims, self.edits, self.answers, self.calls = {}, {}, {}, []
        draw_caption, draw_edit, draw_question = w.test_caption, w.test_edit, w.ask

        def test_caption(*given):
            caption = draw_caption(*given)
            self.claims[caption.text] = caption.claim
            assert w.caption_held_out(caption) or caption.family in ("single", "counting")
            return caption

        def test_edit(*given):
            edit = draw_edit(*given)
            self.edits[edit.text, edit.source.key()] = edit
            assert w.held_out(edit.source.key())
            return edit

        def ask(scene, *given):
            question = draw_question(scene, *given)
            if question is not None:
                self.answers[question.text, scene.key()] = question.answer
            assert w.held_out(scene.key())
            return question

        for function in (test_caption, test_edit, ask):
            monkeypatch.setattr(w, function.__name__, function)

    def set_progress_bar_config(self, **config):
        self.quiet = config["disable"]

    def generate(self, prompts, **settings):
        self.calls.append((len(prompts), settings))
        rng = np.random.default_rng(0)
        return SimpleNamespace(images=[self.paint(w.scene_for(self.claims[text], WORLD, rng)) for text in prompts])

    def run(self, tasks, **settings):
        self.calls.append((len(tasks), settings))
        seen = [(task, scene_of(task.images[0]).key()) for task in tasks]
        if isinstance(tasks[0], Ask):
            return SimpleNamespace(texts=[self.say(self.answers[task.question, key]) for task, key in seen])
        assert all(isinstance(task, Edit) for task in tasks)
        return SimpleNamespace(images=[self.change(self.edits[task.prompt, key]) for task, key in seen])


def one_more(scene):
    cell = scene.free_cells()[-1]
    return w.Scene((*scene.objects, w.Object("circle", "red", "large", cell)), scene.background)


def one_less(scene):
    return w.Scene(scene.objects[1:], scene.background)


def elsewhere(edit):
    """The change, and something that nobody asked for."""
    return picture(one_more(edit.target))


def other_background(edit):
    name = next(b for b in WORLD.backgrounds if b not in (edit.source.background, edit.target.background))
    return picture(replace(edit.target, background=name))


BAD = {
    "draw": [("paint", lambda scene: picture(one_more(scene))), ("paint", lambda scene: picture(one_less(scene))),
             ("paint", lambda scene: NOISE)],
    "edit": [("change", lambda edit: picture(edit.source)), ("change", elsewhere), ("change", other_background),
             ("change", lambda edit: NOISE)],
    "ask": [("say", lambda answer: answer + " yes"), ("say", lambda answer: {"yes": "no"}.get(answer, "yes")),
            ("say", lambda answer: "")],
}  # fmt: skip
CASES = [(part, measure, kind) for part, measure, kinds in (
    ("draw", drawn, DRAWN), ("edit", edited, EDITED), ("ask", asked, ASKED),
) for kind in kinds]  # fmt: skip
cases = pytest.mark.parametrize(("part", "measure", "kind"), CASES, ids=[f"{case[0]}-{case[2]}" for case in CASES])


@cases
def test_what_is_right_counts_and_what_is_wrong_does_not(monkeypatch, part, measure, kind):
    with monkeypatch.context() as patch:
        assert measure(Knowing(patch), WORLD, kind, 6, seed=0) == [True] * 6
    for name, spoil in BAD[part]:
        with monkeypatch.context() as patch:
            assert measure(Knowing(patch, **{name: spoil}), WORLD, kind, 6, seed=0) == [False] * 6


@pytest.mark.parametrize(("measure", "kind"), [(drawn, "colors"), (edited, "recolor"), (asked, "color")])
def test_each_sample_is_judged_by_its_own_fact(monkeypatch, measure, kind):
    """In the order of the samples, over more than one batch."""
    wrong, made = {2, 17, 19}, []

    def spoiled(right, bad):
        made.append(right)
        return bad if len(made) - 1 in wrong else right

    pipeline = Knowing(
        monkeypatch, paint=lambda scene: spoiled(picture(scene), NOISE), say=lambda answer: spoiled(answer, "nothing"),
        change=lambda edit: spoiled(picture(edit.target), NOISE),
    )  # fmt: skip
    right = measure(pipeline, WORLD, kind, 20, seed=5, temperature=0.5)
    assert [number for number, good in enumerate(right) if not good] == sorted(wrong)
    assert [count for count, _ in pipeline.calls] == [16, 4]
    assert all(given["temperature"] == 0.5 and given["seed"] == 5 for _, given in pipeline.calls)
    assert [given["index"] for _, given in pipeline.calls] == [0, 16]   # every sample has a random stream of its own


def test_seeds_choose_the_facts(monkeypatch):
    pipeline = Knowing(monkeypatch)
    prompts = []
    for seed in (0, 0, 1):
        pipeline.claims.clear()
        drawn(pipeline, WORLD, "position", 8, seed)
        prompts.append(list(pipeline.claims))
    assert prompts[0] == prompts[1] != prompts[2]


def test_evaluate_scores_every_kind_with_the_settings_of_its_part(monkeypatch, tmp_path):
    pipeline, rows = Knowing(monkeypatch, say=lambda answer: answer if answer in ("yes", "no") else "?"), []
    settings = {"draw": {"guidance_scale": 2.0}, "ask": {"temperature": 0.0}}
    scores = evaluate(pipeline, WORLD, per_kind=4, settings=settings, log=rows.append)
    assert pipeline.quiet
    assert [(s.task, s.kind) for s in scores] == [
        *(("draw", kind) for kind in DRAWN), *(("ask", kind) for kind in ASKED), *(("edit", kind) for kind in EDITED)
    ]  # fmt: skip
    for s in scores:
        right = float(s.task != "ask" or s.kind in ("exists", "relation", "compare"))
        assert (s.right, s.low, s.high, s.count) == (right, right, right, 4)
    given = [{key: value for key, value in call.items() if key not in ("seed", "index")} for _, call in pipeline.calls]
    assert given == [{"guidance_scale": 2.0}] * 6 + [{"temperature": 0.0}] * 8 + [{}] * 7
    assert len(rows) == 21 + 3 and "37.5%" in next(row for row in rows if row.startswith("ask   mean"))
    write(scores, tmp_path / "scores.json")
    flat = json.loads((tmp_path / "scores.json").read_text())
    assert len(flat) == 4 * 21 and flat["ask_color"] == flat["ask_color_high"] == 0.0
    assert flat["draw_two"] == 1.0 and flat["edit_move_count"] == 4


def test_only_the_asked_parts_are_scored(monkeypatch):
    scores = evaluate(Knowing(monkeypatch), WORLD, per_kind=1, parts=("edit",), log=lambda row: None)
    assert {s.task for s in scores} == {"edit"}


def test_a_real_pipeline_can_be_scored(tiny):
    tiny.set_defaults(replace(tiny.defaults, height=64, width=64, steps=1, text_steps=1, block_length=16))
    scores = evaluate(tiny, WORLD, per_kind=1, log=lambda row: None)
    assert len(scores) == 21
    assert np.mean([s.right for s in scores]) < 0.3                 # its weights are random


def test_the_kinds_are_those_of_the_world():
    assert set(DRAWN) == set(w.FAMILIES) - {"full"}
    assert set(ASKED) == set(w.QUESTION_KINDS)
    assert set(EDITED) == set(w.EDIT_KINDS) - {"resize"}            # the world has one size


# The interval


def test_the_interval_is_that_of_a_share():
    rng = np.random.default_rng(0)
    for share in (0.1, 0.5, 0.9):
        right = np.arange(400) < 400 * share
        mean, low, high = bootstrap(right, rng, rounds=4000)
        half = 1.96 * (share * (1 - share) / 400) ** 0.5
        assert mean == pytest.approx(share)
        assert low == pytest.approx(share - half, abs=0.005) and high == pytest.approx(share + half, abs=0.005)
    assert bootstrap([True] * 5, rng) == (1, 1, 1)
    assert bootstrap([False] * 5, rng) == (0, 0, 0)


def test_the_interval_holds_the_truth_and_shrinks():
    rng = np.random.default_rng(1)
    held, widths = 0, {}
    for count in (20, 320):
        spans = [bootstrap(rng.random(count) < 0.7, rng, rounds=200) for _ in range(100)]
        held += sum(low <= 0.7 <= high for _, low, high in spans)
        widths[count] = np.mean([high - low for _, low, high in spans])
    assert held > 170                                               # of 200
    assert widths[320] == pytest.approx(widths[20] / 4, rel=0.15)


def test_chunks_keep_the_order_and_leave_nothing_out():
    assert list(chunks(list(range(5)), 2)) == [[0, 1], [2, 3], [4]]
    assert [len(chunk) for chunk in chunks(list(range(32)))] == [16, 16]
    assert list(chunks([])) == []
