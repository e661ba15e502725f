"""Training sequences are the ones the sampler meets; what is hidden, and what counts how much."""

from collections import Counter
from itertools import islice, product

import numpy as np
import pytest
import torch
from PIL import Image

from dimoo.tasks import EDIT_KINDS, Ask, Codec, Edit, TextToImage
from dimoo.text import TextTokenizer
from dimoo_training import world as w
from dimoo_training.checkpoint import new_vocab
from dimoo_training.conversations import conversation
from dimoo_training.examples import HIDDEN, SHORT, WINDOWS, ExampleMaker, collate
from dimoo_training.picture_tasks import PICTURE_TASKS, Map, paint
from dimoo_training.pictures import PictureBook, make_book
from dimoo_training.puzzles import PUZZLES
from dimoo_training.words import build_tokenizer
from tokenizers_vq import ToyImageTokenizer

BRANCHES = ("cond", "uncond", "no_text", "no_image")
SIZES = dict.fromkeys(PICTURE_TASKS, 8)


@pytest.fixture(scope="module")
def codec():
    tokenizer, images = build_tokenizer(samples=100), ToyImageTokenizer()
    return Codec(TextTokenizer(tokenizer, new_vocab(tokenizer, images.codebook_size)), images, image_side=64)


@pytest.fixture(scope="module")
def books(codec):
    rng = np.random.default_rng(0)
    return {name: make_book(w.WORLDS[name], SIZES, codec.images, rng) for name in ("first", "full")}


@pytest.fixture
def maker(codec, books):
    return ExampleMaker(codec.text, codec.vocab, books)


def of_one(codec, book, kind, record):
    """A maker that knows one record of a book."""
    small = PictureBook(book.world)
    small.pictures, small.codes, small.records = book.pictures, book.codes, {kind: [record]}
    return ExampleMaker(codec.text, codec.vocab, {"full": small})


def said(text):
    """How a prompt may be worded: at times with a full stop."""
    return (text,) if text.endswith("?") else (text, text + ".")


def rows_met(example, rows, vocab):
    """(branch, its masks) of every row that is the example, but for what its masks are to be filled with."""
    found = []
    for row, branch in product(rows, BRANCHES):
        if branch in row.conditions:
            ids = torch.cat([row.conditions[branch], row.answer]).numpy()
            masks = ids == vocab.mask
            if len(ids) == len(example.ids) and (ids == example.ids)[~masks].all():
                found.append((branch, masks))
    return found


# Pictures are rows of the tasks


def rows_of(record, book, codec):
    """What the task of a record prepares, in every wording."""
    if record.system == "text_to_image":
        return [TextToImage(words, 64, 64).prepare(codec) for words in said(record.text)]
    shown = [Image.fromarray(paint(book.pictures[page])) for page in record.sources]
    kind = next(k for k, (system, fixed) in EDIT_KINDS.items()
                if system == record.system and fixed in (None, record.text))  # fmt: skip
    rows = [Edit(record.text, shown, edit=kind).prepare(codec)]
    if EDIT_KINDS[kind][1] is None:
        return [Edit(words, shown, edit=kind).prepare(codec) for words in said(record.text)]
    dotted = codec.text.conditions(record.system, record.text + ".", [codec.vocab.lay_out(codec.read(s)[1])
                                                                     for s in shown])  # fmt: skip
    return [*rows, type(rows[0])(rows[0].answer, dotted, rows[0].columns, rows[0].grid)]


def check_picture(example, rows, target, codec):
    """One row is the example; its masks hold the target's codes row by row, and nothing else may be noised."""
    found = rows_met(example, rows, codec.vocab)
    assert found, codec.text.tokenizer.decode(example.ids)
    branch, masks = found[0]
    codes = codec.read(Image.fromarray(paint(target)))[1].flatten().numpy()
    assert (example.ids[masks] == codes + codec.vocab.image_offset).all()
    assert ((example.weight > 0) == masks).all()
    assert example.noise.any() and not (example.noise & ~masks).any()
    return branch


@pytest.mark.parametrize("kind", PICTURE_TASKS)
def test_a_picture_is_what_the_task_prepares(kind, codec, books, rng):
    book = books["full"]
    for record in book.records[kind]:
        rows = rows_of(record, book, codec)
        example = of_one(codec, book, kind, record).picture(kind, "full", rng)
        check_picture(example, rows, book.pictures[record.target], codec)


@pytest.mark.parametrize(
    ("kind", "rates"),
    [("draw", {"uncond": 0.1}), ("style", {"no_text": 1 / 30, "no_image": 1 / 30, "uncond": 1 / 30})],
)
def test_a_tenth_of_the_prompts_is_dropped(codec, books, rng, kind, rates):
    book, count = books["full"], 600
    record = book.records[kind][0]
    maker, rows = of_one(codec, book, kind, record), rows_of(record, book, codec)
    branches = Counter(
        rows_met(maker.picture(kind, "full", rng), rows, codec.vocab)[0][0] for _ in range(count)
    )
    assert set(branches) == {"cond", *rates}
    for branch, rate in rates.items():
        assert abs(branches[branch] / count - rate) < 4 * (rate / count) ** 0.5, branches


# Answers


def turns_of(example, codec):
    """[(question, answer, first position of the answer, position behind it)], read back from the ids."""
    ids, text, v = example.ids.tolist(), codec.text, codec.vocab
    opened = [at for at, token in enumerate(ids) if token == v.boa]
    turns, start = [], 0
    for number, at in enumerate(opened):
        words = ids[ids.index(text.tags["<user>"], start) + 1 : at - 1]
        question = text.decode(words[: words.index(v.boi)] if v.boi in words else words)
        end = len(ids) - 1 if number == len(opened) - 1 else ids.index(v.eoa, at)
        turns.append((question, text.decode(ids[at + 1 : end]), at + 1, end))
        start = end
    return turns


def answers(codec, books, rng, count=120):
    """(example, turns, scene); each example is of a book with one scene."""
    book = books["full"]
    pages = book.scenes()
    for _ in range(count):
        page, one = pages[int(rng.integers(len(pages)))], PictureBook(book.world)
        one.pictures, one.codes = [book.pictures[page]], book.codes[page : page + 1]
        example = ExampleMaker(codec.text, codec.vocab, {"full": one}).answer("full", rng)
        yield example, turns_of(example, codec), book.pictures[page]


def test_answers_are_what_the_task_prepares_and_only_they_are_hidden(codec, books, rng):
    numbers, earlier = set(), []
    for example, turns, scene in answers(codec, books, rng):
        history = [(question, answer) for question, answer, _, _ in turns[:-1]]
        question, answer, start, end = turns[-1]
        row = Ask(question, [Image.fromarray(w.render(scene))], history, length=end - start).prepare(codec)
        assert rows_met(example, [row], codec.vocab), codec.text.tokenizer.decode(example.ids)
        words, v = codec.text.encode(answer), codec.vocab
        assert words and end - start in WINDOWS
        assert example.ids[start:end].tolist() == words + [v.eoa] + [v.pad] * (end - start - len(words) - 1)
        numbers.add(len(turns))

        allowed = np.zeros(len(example.ids), dtype=bool)
        for _, _, first, behind in turns:
            allowed[first:behind] = True
        assert not (example.noise & ~allowed).any() and ((example.weight > 0) == allowed).all()
        is_pad = example.ids == v.pad
        assert set(example.weight[allowed & is_pad].tolist()) <= {np.float32(0.05)}
        counted = set(example.weight[allowed & ~is_pad].tolist())
        assert counted <= {1.0, np.float32(min(1.0, SHORT / (len(words) + 1)))}
        last = example.noise[start : start + len(words) + 1]        # with its end
        assert last.all() if len(words) <= 5 else last.any()
        for _, _, first, behind in turns[:-1]:
            assert example.noise[first:behind].all() or not example.noise[first:behind].any()
            earlier.append(bool(example.noise[first]))
    assert 1 in numbers and max(numbers) >= 4 and len(numbers) >= 4
    assert abs(np.mean(earlier) - HIDDEN) < 0.12


def test_the_window_is_any_that_has_room_for_the_end(maker, codec, monkeypatch, rng):
    for count, windows in ((1, {8, 16, 32, 48}), (7, {8, 16, 32, 48}), (8, {16, 32, 48}), (40, {48})):
        reply = "7" * count                                                             # digits stay single
        monkeypatch.setattr("dimoo_training.examples.conversation", lambda *_, reply=reply: [("why?", reply)])
        assert len(codec.text.encode(reply)) == count
        found = (turns_of(maker.answer("full", rng), codec)[-1] for _ in range(30))
        assert {end - start for _, _, start, end in found} == windows


@pytest.mark.parametrize("room", [150, 184, 240])
def test_conversations_fill_the_room(maker, codec, rng, room):
    """All but captions, which may be longer, and a single question."""
    found = [maker.answer("full", rng, room) for _ in range(60)]
    talks = [example for example in found if len(turns_of(example, codec)) > 1]
    assert len(talks) > 20 and max(len(example.ids) for example in talks) <= room
    assert np.mean([len(example.ids) for example in talks]) > room - 20


@pytest.mark.parametrize("kind", w.QUESTION_KINDS)
def test_a_drill_is_of_one_kind_wherever_the_scene_allows_it(kind, books, rng):
    scenes = [books["full"].pictures[page] for page in books["full"].scenes()[:30]]
    for scene in scenes:
        allowed = {w.ask(scene, kind, np.random.default_rng(seed)) for seed in range(40)} - {None}
        question, answer = next(conversation(scene, w.WORLDS["full"], rng, kind))
        if allowed:
            words = {tuple(q.text.split()[:2]) for q in allowed}
            assert tuple(question.split()[:2]) in words and " a) " not in question and answer


def test_conversations_are_true(books, rng):
    """Captions are the report, and letters stand for the answer."""
    captions = letters = 0
    for number in range(300):
        scene = books["full"].pictures[books["full"].scenes()[number % 20]]
        for question, answer in islice(conversation(scene, w.WORLDS["full"], rng), 4):
            if answer == w.report(scene).text:
                captions += 1
            elif " a) " in question:
                letters += 1
                asked, _, options = question.partition(" a) ")
                shown = dict(part.split(") ") for part in ("a) " + options).replace(" b)", "|b)").replace(
                    " c)", "|c)").replace(" d)", "|d)").split("|"))  # fmt: skip
                assert answer in shown and asked[-1] in "?s" and len(set(shown.values())) == len(shown)
    assert 30 < captions < 95 and letters > 60


def test_puzzles_are_asked_without_a_picture(maker, codec, rng):
    kinds = Counter()
    for _ in range(60):
        example = maker.puzzle("full", rng)
        (question, answer, start, end) = turns_of(example, codec)[0]
        row = Ask(question, length=end - start).prepare(codec)
        assert rows_met(example, [row], codec.vocab)
        kind = "sudoku" if "sudoku" in question else "countdown" if "countdown" in question else "arithmetic"
        kinds[kind] += 1
        if kind != "sudoku":                                        # digits are split, so spaces tell nothing there
            assert answer
    assert set(kinds) == set(PUZZLES) and kinds["arithmetic"] < kinds["sudoku"]


def test_special_tokens_are_never_hidden(maker, codec, rng):
    v, tags = codec.vocab, codec.text.tags.values()
    fixed = [v.newline, v.boi, v.eoi, v.boa, v.uncondition, v.mask, *tags]
    for kind in maker.kinds:
        for _ in range(25):
            example = maker.kinds[kind]("full", rng)
            assert not np.isin(example.ids[example.noise], fixed).any()
            assert not example.noise[: example.ids.tolist().index(v.boa) + 1].any()
            assert example.ids[-1] == v.eoa and not example.noise[-1]
            assert (example.ids != v.mask).all()


# How much is hidden and what it weighs


def cells_with_objects(picture):
    """(64,) bool, found in the pixels."""
    empty = w.Scene((), "black" if isinstance(picture, Map) else picture.background)
    differs = (paint(picture) != w.render(empty)).any(-1)
    return differs.reshape(4, 16, 4, 16).any((1, 3)).repeat(2, 0).repeat(2, 1).ravel()


@pytest.mark.parametrize("kind", PICTURE_TASKS)
def test_objects_and_changes_weigh_more(kind, codec, books, rng):
    book, seen = books["full"], set()
    for record in book.records[kind]:
        example = of_one(codec, book, kind, record).picture(kind, "full", rng)
        shown = cells_with_objects(book.pictures[record.target])
        expected = np.where(shown, 3.0 if kind == "edit" else 4.0, 1.0)
        if kind == "edit":
            expected[(book.codes[record.sources[0]] != book.codes[record.target]).ravel()] = 6.0
        assert example.weight[example.weight > 0].tolist() == expected.tolist()
        seen |= set(expected.tolist())
    assert seen == ({1.0, 3.0, 6.0} if kind == "edit" else {1.0, 4.0})


@pytest.mark.parametrize("kind", ["draw", "edit", "answer", "puzzle"])
def test_a_batch_counts_what_is_hidden_only(maker, codec, rng, kind):
    examples = [maker.kinds[kind]("full", rng) for _ in range(12)]
    batch = collate(examples, codec.vocab, 300)
    shapes = {name: tuple(value.shape) for name, value in batch.items()}
    assert shapes == {**dict.fromkeys(("input_ids", "labels", "weight", "key_mask"), (12, 300)), "ratio": (12,)}
    for row, example in enumerate(examples):
        length = len(example.ids)
        assert batch["labels"][row, :length].tolist() == example.ids.tolist()
        assert batch["key_mask"][row].tolist() == [True] * length + [False] * (300 - length)
        assert (batch["labels"][row, length:] == codec.vocab.pad).all()
        assert batch["ratio"][row] == pytest.approx(example.noise.sum() / (example.weight > 0).sum())
    hidden = batch["input_ids"] == codec.vocab.mask
    assert torch.equal(batch["input_ids"][~hidden], batch["labels"][~hidden])
    assert torch.equal(batch["weight"] > 0, hidden)
    noise, weight = (np.concatenate([getattr(e, name) for e in examples]) for name in ("noise", "weight"))
    assert int(hidden.sum()) == noise.sum()
    assert batch["weight"][hidden].tolist() == weight[noise].tolist()


def test_batches_follow_from_the_generator_and_fit(maker):
    batches = [maker.batch("answer", 6, 150, np.random.default_rng(seed)) for seed in (5, 5, 6)]
    assert all(torch.equal(value, batches[1][name]) for name, value in batches[0].items())
    assert not torch.equal(batches[0]["labels"], batches[2]["labels"])
    assert all(len(batch["labels"]) == 6 for batch in batches)
    longest = {len(maker.answer("full", np.random.default_rng(seed)).ids) for seed in range(30)}
    assert max(longest) > 150                                       # some had to be left out


def test_books_are_used_by_their_shares(maker, rng, monkeypatch):
    used = Counter()
    make = maker.kinds["puzzle"]
    monkeypatch.setitem(maker.kinds, "puzzle", lambda name, rng: used.update([name]) or make(name, rng))
    maker.batch("puzzle", 40, 200, rng, {"first": 1.0, "full": 4.0})
    assert used["full"] > 2 * used["first"] > 0
    used.clear()
    maker.batch("puzzle", 10, 200, rng, {"first": 1.0})
    assert set(used) == {"first"}


def test_no_question_is_about_a_held_out_scene(codec, books):
    """Captions and edits may lead to such scenes, but the evaluation asks about them."""
    book, marked = books["full"], PictureBook(books["full"].world)
    held = {i for i, p in enumerate(book.pictures) if not isinstance(p, Map) and w.held_out(p.key())}
    marked.pictures = book.pictures
    numbers = np.arange(len(book.pictures), dtype=np.int16)[:, None, None]
    marked.codes = numbers.repeat(8, 1).repeat(8, 2)                # the codes tell which scene it is
    maker, rng = ExampleMaker(codec.text, codec.vocab, {"full": marked}), np.random.default_rng(0)
    drawn = [maker.answer("full", rng).ids for _ in range(250)]
    asked = {int(ids[ids.tolist().index(codec.vocab.boi) + 1]) - codec.vocab.image_offset for ids in drawn}
    assert len(held) > 3 and len(asked) > 40 and not asked & held
