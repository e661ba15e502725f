"""The facts of an evaluation: held out, drawn from a seed, committed, and the same after a trip through JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dimoo_training import evaluation
from dimoo_training import world as w
from dimoo_training.evaluation.as_json import from_json, to_json
from dimoo_training.evaluation.facts import COMMITTED, PER_KIND, SOURCES, write_facts
from dimoo_training.puzzles import PUZZLES

FULL = w.WORLDS["full"]


@pytest.fixture(scope="module")
def committed():
    return evaluation.committed_facts()


def every(facts):
    return [(part, kind, item) for part, kinds in facts.items() for kind, items in kinds.items() for item in items]


def test_the_committed_facts_are_those_of_seed_0(committed):
    assert evaluation.draw_facts(FULL, seed=0, per_kind=PER_KIND) == committed
    assert {part: list(kinds) for part, kinds in committed.items()} == {p: list(k) for p, k in SOURCES.items()}
    assert {len(items) for kinds in committed.values() for items in kinds.values()} == {PER_KIND}


def test_facts_survive_json(committed):
    for _, _, item in every(committed):
        again = from_json(json.loads(json.dumps(to_json(item))))
        assert again == item and type(again) is type(item)


def test_writing_the_facts_again_changes_nothing(committed, tmp_path):
    from dimoo.assets import asset

    write_facts(committed, tmp_path / "facts.json")
    assert (tmp_path / "facts.json").read_text() == asset(COMMITTED).read_text()


def test_all_of_them_are_held_out(committed):
    for part, kind, item in every(committed):
        if part == "t2i":
            assert w.caption_held_out(item) or kind in ("single", "counting")
        elif part in ("qa", "map"):
            assert w.held_out(item.scene.key())
        elif part == "caption":
            assert w.held_out(item.key())
        elif part == "edit":
            assert w.held_out(item.source.key())
        elif part == "reference":
            assert w.held_out("+".join(scene.key() for scene in item.sources))
        else:
            assert item.kind == kind and PUZZLES[kind].right(item, item.answer)


def test_facts_are_true(committed):
    for part, kind, item in every(committed):
        assert getattr(item, "kind", getattr(item, "family", kind)) == kind or part == "qa"
        if part == "edit":
            assert w.edit_holds(item, item.target) == (True, True)
        elif part == "reference":
            assert item.claim.holds(item.target)
        elif part == "map":
            assert item.caption.claim.holds(item.scene)
        elif part == "qa":
            assert item.question.kind == kind and item.question.answer in item.question.choices


def test_fewer_facts_are_the_first_ones(committed):
    few = evaluation.committed_facts(["t2i", "puzzle"], per_kind=2)
    assert few == {part: {kind: items[:2] for kind, items in committed[part].items()} for part in ("t2i", "puzzle")}
    assert evaluation.draw_facts(FULL, 0, 2, ["edit"])["edit"]["swap"] == committed["edit"]["swap"][:2]
    assert evaluation.draw_facts(FULL, 1, 2, ["t2i"])["t2i"]["position"] != committed["t2i"]["position"][:2]


def test_a_choice_asks_for_the_letter_of_the_answer(committed):
    letters = set()
    for _, _, asked in every({"qa": committed["qa"]}):
        text, letter = asked.question.as_choice()
        shown = text.removeprefix(asked.question.text + " ")
        letters.add(letter)
        assert f"{letter}) {asked.question.answer}" in shown
        assert shown.count(")") == len(asked.question.choices)
    assert letters == set("abcd")
    with pytest.raises(ValueError):
        replace(asked.question, answer="a word of no choice").as_choice()


def test_half_of_the_yes_and_no_questions_are_no(rng, scenes):
    for kind in ("exists", "relation", "compare"):
        asked = [w.ask(scene, kind, rng, FULL) for scene in scenes(FULL, rng, 300)]
        answers = [question.answer for question in asked if question]
        assert 0.4 < np.mean([answer == "no" for answer in answers]) < 0.6
