"""Answers, holes and passages changed in place; answers shown as they grow; rules from a file."""

import json

import pytest
import torch

from dimoo.tasks import Ask, Infill, Rewrite, Text
from dimoo.tasks.text import within


def words_of(codec, ids):
    return [index for index in ids.tolist() if index not in (codec.vocab.boa, codec.vocab.eoa)]


def test_an_answer_is_asked_for_like_a_question_without_pictures(tiny):
    row = Text("what is a star?", 5, [("hello", "hi")]).prepare(tiny.codec)
    asked = Ask("what is a star?", history=[("hello", "hi")], length=5).prepare(tiny.codec)
    assert torch.equal(row.answer, asked.answer) and torch.equal(row.conditions["cond"], asked.conditions["cond"])


def test_holes_lie_between_fixed_words(tiny):
    codec, task = tiny.codec, Infill(["the ", 2, " circle"], "what is there?")
    row = task.prepare(codec)
    mask, encode = codec.vocab.mask, codec.text.encode
    assert words_of(codec, row.answer) == [*encode("the "), mask, mask, *encode(" circle")]
    filled = row.answer.masked_fill(row.answer == mask, encode("red")[0])
    filled[row.answer == mask] = torch.tensor([encode("red")[0], codec.vocab.pad])  # a hole that was too long
    assert task.finish(codec, filled) == "the " + codec.text.decode(encode("red")[:1], strip=False) + " circle"


def test_infilling_leaves_the_fixed_words(tiny):
    made = tiny.infill(["a red circle to the ", 3, " of a blue square"], seed=0, num_inference_steps=3)
    assert made.texts[0].startswith("a red circle to the ") and made.texts[0].endswith(" of a blue square")


def test_what_is_kept_reopened_and_free_to_be_edited(tiny):
    codec, text = tiny.codec, "a red circle on green"
    row = Rewrite(text, keep=["circle"], reopen=[(2, 5)]).prepare(codec)
    pieces = [codec.text.encode(words) for words in ("a ", "red", " ", "circle", " on green")]
    held = [False, None, False, True, False]
    each = [(index, state) for piece, state in zip(pieces, held, strict=True) for index in piece]
    ids = [codec.vocab.mask if state is None else index for index, state in each]
    free = [state is False for _, state in each]
    assert row.answer[1:-1].tolist() == ids and row.rewritable[1:-1].tolist() == free
    assert not row.rewritable[0] and not row.rewritable[-1]


@pytest.mark.parametrize("editing", [None, "confident(threshold=0.0)"])
def test_rewriting_touches_only_what_it_may(tiny, editing):
    text = "a red circle on green"
    options = {"keep": ["circle"], "reopen": ["red"], "seed": 0, "editing": editing, "output_type": "tokens"}
    before = Rewrite(text, keep=["circle"], reopen=["red"]).prepare(tiny.codec)
    after = tiny.rewrite(text, **options).texts[0]
    opened = before.answer == tiny.codec.vocab.mask
    assert not (after == tiny.codec.vocab.mask).any()
    changed = (after != before.answer) & ~opened
    assert not (changed & ~before.rewritable).any()
    assert bool(changed.any()) == (editing is not None)  # random weights disagree with anything


REFUSED = {
    "nothing to fill": lambda: Infill(["all is there"]),
    "a hole is a whole number of at least 1 mask, got 0": lambda: Infill(["a", 0]),
    "a hole is a whole number of at least 1 mask, got True": lambda: Infill(["a", True]),
    "'blue' does not occur in the text": lambda: Rewrite("a red circle", reopen=["blue"]),
    r"0 <= start < stop <= 12, got \(3, 13\)": lambda: Rewrite("a red circle", keep=[(3, 13)]),
    "'red' cannot be kept and reopened at once": lambda: Rewrite("a red circle", keep=["a red"], reopen=["red circle"]),
    "the answer length must be at least 1, got 0": lambda: Text("x", 0),
    "the prompt is empty": lambda: Text(" "),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_asked_is_refused(words):
    with pytest.raises(ValueError, match=words):
        REFUSED[words]()


def test_a_preview_shows_open_places_and_stops_at_a_settled_end(tiny):
    codec = tiny.codec
    red, circle = codec.text.encode("red"), codec.text.encode(" circle")
    m, e = codec.vocab.mask, codec.vocab.eoa
    assert codec.text.preview([*red, m, *circle, m]) == "red░ circle░"
    assert codec.text.preview([*red, e, m, *circle]) == "red"
    assert codec.text.preview([m, *red, e, *circle]).startswith("░red")


# The command line

MINE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Mine:
    \"\"\"The leftmost open positions, `count` at a time.\"\"\"
    count: int = 2
    adaptive = True
    uses_quota = False

    def __call__(self, found):
        return found.open & (found.open.cumsum(1) <= self.count)
"""


def test_a_rule_of_ones_own(tiny, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    seen = []

    def keep(pipeline, tick, step, given):
        seen.append(given["ids"][0])

    for count, forwards in ((2, 3), (3, 2)):
        seen.clear()
        options = {"length": 6, "seed": 0, "rule": f"{path}:Mine(count={count})", "callback_on_step_end": keep}
        assert tiny.write("what is it?", **options).forwards <= forwards
        open = seen[0] == tiny.codec.vocab.mask
        assert open.int().tolist() == [0] * (count + 1) + [1] * (6 - count) + [0]


def test_the_command_takes_rules_and_streams(cli, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    plain = cli("ask", "what is it?", "--seed", 0, "--length", 6, "--rule", "mine.py:Mine(count=3)").stdout
    shown = cli("ask", "what is it?", "--seed", 0, "--length", 6, "--rule", "mine.py:Mine(count=3)", "--stream")
    assert shown.stdout == plain and "░" in shown.stderr
    assert "there is" in cli("ask", "what?", "--rule", "treshold", code=2).stderr
    wrong = cli("ask", "what?", "--rule", "threshold", "--quota", "even", code=2).stderr
    assert "allowed: rule: quota, random, threshold-or-quota" in wrong


def test_the_command_fills_and_changes_passages(cli):
    filled = cli("ask", "--fill", "a {2} circle", "--seed", 0, "--steps", 2, "--stream")
    assert filled.stdout.startswith("a ") and filled.stdout.rstrip().endswith(" circle")
    assert "░" in filled.stderr
    options = ("--keep", "circle", "--reopen", "red", "--editing", "confident(threshold=0)", "--seed", 0, "--json")
    told = json.loads(cli("ask", "what is there?", "--rewrite", "a red circle", *options).stdout)
    assert (told["task"], told["rewrite"], told["keep"]) == ("rewrite", "a red circle", ["circle"])
    assert "circle" in told["answer"] and "length" not in told


def test_the_answer_is_read_between_its_marks(tiny):
    answer = torch.tensor([tiny.codec.vocab.boa, 40, 41, tiny.codec.vocab.eoa])
    assert within(tiny.codec, answer).tolist() == [40, 41]
