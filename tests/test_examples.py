"""Training sequences are the ones the sampler meets; what is hidden, what counts how much, and what is held out."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image

from dimoo.tasks import Ask, Codec, Edit, TextToImage
from dimoo.text import TextTokenizer
from dimoo_training import world as w
from dimoo_training.examples import WINDOWS, ExampleMaker, collate, cosine_noise
from dimoo_training.pictures import CAPTION_MIX, EDIT_MIX, PictureBook, draw_from, make_book
from dimoo_training.sft import read_vocab
from dimoo_training.words import build_tokenizer
from tokenizers_vq import ToyImageTokenizer

WORLD = w.WORLDS["first"]
BRANCHES = ("cond", "uncond", "no_text", "no_image")


@pytest.fixture(scope="module")
def codec():
    tokenizer, images = build_tokenizer(samples=300), ToyImageTokenizer()
    return Codec(TextTokenizer(tokenizer, read_vocab(tokenizer, images.codebook_size)), images, image_side=64)


@pytest.fixture(scope="module")
def book(codec):
    return make_book(WORLD, 60, 60, codec.images, np.random.default_rng(0))


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture
def maker(codec, book):
    return ExampleMaker(codec.text, codec.vocab, book, WORLD)


def of_one(codec, book, **records):
    """A maker that knows only some records of the book."""
    return ExampleMaker(codec.text, codec.vocab, PictureBook(book.scenes, codes=book.codes, **records), WORLD)


def picture(scene):
    return Image.fromarray(w.render(scene))


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


# Drawings and edits are rows of the tasks


def check_picture(example, rows, target, codec):
    """One row is the example; its masks hold the target's codes row by row, and nothing else may be noised."""
    found = rows_met(example, rows, codec.vocab)
    assert found, codec.text.tokenizer.decode(example.ids)
    branch, masks = found[0]
    codes = codec.read(picture(target))[1].flatten().numpy()
    assert (example.ids[masks] == codes + codec.vocab.image_offset).all()
    assert ((example.weight > 0) == masks).all()
    assert example.noise.any() and not (example.noise & ~masks).any()
    return branch


def test_a_drawing_is_what_the_task_prepares(codec, book, rng):
    for text, index in book.captions:
        rows = [TextToImage(words, 64, 64).prepare(codec) for words in said(text)]
        example = of_one(codec, book, captions=[(text, index)]).draw(rng)
        check_picture(example, rows, book.scenes[index], codec)


def test_an_edit_is_what_the_task_prepares(codec, book, rng):
    for text, source, target in book.edits:
        rows = [Edit(words, [picture(book.scenes[source])]).prepare(codec) for words in said(text)]
        example = of_one(codec, book, edits=[(text, source, target)]).edit(rng)
        check_picture(example, rows, book.scenes[target], codec)


@pytest.mark.parametrize(
    ("kind", "rates"),
    [("draw", {"uncond": 0.1}), ("edit", {"no_text": 1 / 30, "no_image": 1 / 30, "uncond": 1 / 30})],
)
def test_a_tenth_of_the_prompts_is_dropped(codec, book, rng, kind, rates):
    text, source, target = book.edits[0]
    maker = of_one(codec, book, captions=[(text, target)], edits=[(text, source, target)])
    image = picture(book.scenes[source])
    tasks = {"draw": lambda words: TextToImage(words, 64, 64), "edit": lambda words: Edit(words, [image])}
    rows = [tasks[kind](words).prepare(codec) for words in said(text)]
    count = 600
    branches = Counter(
        check_picture(maker.kinds[kind](rng), rows, book.scenes[target], codec) for _ in range(count)
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


def answers(codec, book, rng, count=200):
    """(example, turns, scene); each example is of a book with one scene."""
    for _ in range(count):
        index = int(rng.integers(len(book.scenes)))
        scene = book.scenes[index]
        if not w.held_out(scene.key()):
            one = PictureBook([scene], codes=book.codes[index : index + 1])
            example = ExampleMaker(codec.text, codec.vocab, one, WORLD).answer(rng)
            yield example, turns_of(example, codec), scene


def test_an_answer_is_what_the_task_prepares(codec, book, rng):
    numbers = set()
    for example, turns, scene in answers(codec, book, rng):
        history = [(question, answer) for question, answer, _, _ in turns[:-1]]
        question, answer, start, end = turns[-1]
        row = Ask(question, [picture(scene)], history, length=end - start).prepare(codec)
        assert rows_met(example, [row], codec.vocab), codec.text.tokenizer.decode(example.ids)
        words, v = codec.text.encode(answer), codec.vocab
        assert words and end - start in WINDOWS
        assert example.ids[start:end].tolist() == words + [v.eoa] + [v.pad] * (end - start - len(words) - 1)
        numbers.add(len(turns))
    assert numbers == {1, 2, 3}


def test_the_window_is_any_that_has_room_for_the_end(maker, codec, rng):
    for count, windows in ((1, {8, 16, 32, 48}), (7, {8, 16, 32, 48}), (8, {16, 32, 48}), (40, {48})):
        maker._turns = lambda scene, rng, count=count: [("why?", "7" * count)]          # digits stay single
        assert len(codec.text.encode("7" * count)) == count
        found = (turns_of(maker.answer(rng), codec)[-1] for _ in range(40))
        assert {end - start for _, _, start, end in found} == windows


def test_only_answers_are_hidden(codec, book, rng):
    hidden_history = 0
    for example, turns, _ in answers(codec, book, rng):
        allowed = np.zeros(len(example.ids), dtype=bool)
        for _, _, start, end in turns:
            allowed[start:end] = True
        assert not (example.noise & ~allowed).any()
        assert ((example.weight > 0) == allowed).all()
        is_pad = example.ids == codec.vocab.pad
        assert set(example.weight[allowed & is_pad].tolist()) <= {np.float32(0.05)}
        assert set(example.weight[allowed & ~is_pad].tolist()) == {1.0}
        hidden = [example.noise[start:end] for _, _, start, end in turns]
        for number, (_, answer, _, _) in enumerate(turns):
            words, last = len(codec.text.encode(answer)), number == len(turns) - 1
            if last:
                assert hidden[-1][: words + 1].any()
            if words <= 5:                                          # short answers as a whole, with their end
                assert hidden[number][: words + 1].all() or (not last and not hidden[number].any())
            hidden_history += not last and bool(hidden[number].any())
    assert hidden_history > 15


def test_answers_are_about_the_picture(codec, book, rng):
    full = [
        (turns[0][1], scene) for _, turns, scene in answers(codec, book, rng) if turns[0][1].endswith("background")
    ]
    assert len(full) > 15
    assert all(answer == w.report(scene).text for answer, scene in full)


def test_special_tokens_are_never_hidden(maker, codec, rng):
    v, tags = codec.vocab, codec.text.tags.values()
    fixed = [v.newline, v.boi, v.eoi, v.boa, v.uncondition, v.mask, *tags]
    for kind in maker.kinds:
        for _ in range(100):
            example = maker.kinds[kind](rng)
            assert not np.isin(example.ids[example.noise], fixed).any()
            assert not example.noise[: example.ids.tolist().index(v.boa) + 1].any()
            assert example.ids[-1] == v.eoa and not example.noise[-1]
            assert (example.ids != v.mask).all()


# How much is hidden and what it weighs


class Stub:
    """A generator that draws one number, and puts nothing in another order."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value

    def permutation(self, count):
        return np.arange(count)


@pytest.mark.parametrize(("u", "share"), [(0, 1), (1 / 3, 0.5 * 3**0.5), (0.5, 0.5**0.5), (2 / 3, 0.5), (1, 0)])
@pytest.mark.parametrize("count", [1, 2, 9, 64])
def test_cosine_noise_is_exact(count, u, share):
    noise = cosine_noise(count, Stub(u))
    assert len(noise) == count
    assert noise.sum() == max(1, int(count * share))


def test_cosine_noise_is_spread_as_the_schedule_and_over_all_places(rng):
    noise = np.stack([cosine_noise(64, rng) for _ in range(4000)])
    counts = noise.sum(1)
    assert counts.min() == 1 and counts.max() == 63
    for u in (0.25, 0.5, 0.75):             # the quantiles of cos(pi/2 u) are cos(pi/2 (1 - q))
        assert abs(np.quantile(counts, 1 - u) - 64 * np.cos(np.pi / 2 * u)) < 3
    assert abs(noise.mean(0) - noise.mean()).max() < 0.04


def drawn_cells(scene):
    """(8, 8) bool: codes in cells of the grid where the picture is not mere background."""
    differs = (w.render(scene) != w.render(w.Scene((), scene.background))).any(-1)
    cells = differs.reshape(4, 16, 4, 16).any((1, 3))
    return cells.repeat(2, 0).repeat(2, 1).ravel()


def test_objects_weigh_four_times_as_much(codec, book, rng):
    for text, index in book.captions[:20]:
        example = of_one(codec, book, captions=[(text, index)]).draw(rng)
        expected = np.where(drawn_cells(book.scenes[index]), 4.0, 1.0)
        assert example.weight[example.weight > 0].tolist() == expected.tolist()


def test_what_an_edit_changes_weighs_most(codec, book, rng):
    seen = Counter()
    for text, source, target in book.edits:
        example = of_one(codec, book, edits=[(text, source, target)]).edit(rng)
        before, after = (codec.read(picture(book.scenes[index]))[1].flatten() for index in (source, target))
        expected = np.where(drawn_cells(book.scenes[target]), 3.0, 1.0)
        expected[(before != after).numpy()] = 6.0
        assert example.weight[example.weight > 0].tolist() == expected.tolist()
        seen.update(expected.tolist())
    assert set(seen) == {1.0, 3.0, 6.0}


@pytest.mark.parametrize("kind", ["draw", "edit", "answer"])
def test_a_batch_counts_what_is_hidden_only(maker, codec, rng, kind):
    examples = [maker.kinds[kind](rng) for _ in range(20)]
    batch = collate(examples, codec.vocab, 200)
    assert {name: tuple(value.shape) for name, value in batch.items()} == dict.fromkeys(batch, (20, 200))
    for row, example in enumerate(examples):
        length = len(example.ids)
        assert batch["labels"][row, :length].tolist() == example.ids.tolist()
        assert batch["key_mask"][row].tolist() == [True] * length + [False] * (200 - length)
        assert (batch["labels"][row, length:] == codec.vocab.pad).all()
    hidden = batch["input_ids"] == codec.vocab.mask
    assert torch.equal(batch["input_ids"][~hidden], batch["labels"][~hidden])
    assert torch.equal(batch["weight"] > 0, hidden)
    noise, weight = (np.concatenate([getattr(e, name) for e in examples]) for name in ("noise", "weight"))
    assert int(hidden.sum()) == noise.sum()
    assert batch["weight"][hidden].tolist() == weight[noise].tolist()


def test_batches_follow_from_the_generator_and_fit(maker):
    batches = [maker.batch("answer", 12, 120, np.random.default_rng(seed)) for seed in (5, 5, 6)]
    assert all(torch.equal(value, batches[1][name]) for name, value in batches[0].items())
    assert not torch.equal(batches[0]["labels"], batches[2]["labels"])
    longest = {len(maker.answer(np.random.default_rng(seed)).ids) for seed in range(50)}
    assert max(longest) > 120                                       # some had to be left out
    assert all(len(batch["labels"]) == 12 for batch in batches)


def test_kinds_are_drawn_by_their_share(rng):
    counts = Counter(draw_from({"a": 1.0, "b": 3.0, "never": 0.0}, rng) for _ in range(4000))
    assert set(counts) == {"a", "b"}
    assert abs(counts["a"] / 4000 - 0.25) < 0.03
    assert set(CAPTION_MIX) == set(w.FAMILIES)
    assert set(EDIT_MIX) == set(w.EDIT_KINDS) - {"resize"}          # one size only


# What is held out


def test_nothing_held_out_enters_a_book(codec, monkeypatch):
    captions, draw_caption = [], w.train_caption
    monkeypatch.setattr(w, "train_caption", lambda *given: captions.append(draw_caption(*given)) or captions[-1])
    book = make_book(WORLD, 250, 250, codec.images, np.random.default_rng(3))
    assert [caption.text for caption in captions] == [text for text, _ in book.captions]
    assert not any(w.caption_held_out(caption) for caption in captions)
    assert not any(w.held_out(book.scenes[source].key()) for _, source, _ in book.edits)
    for caption, (_, index) in zip(captions, book.captions, strict=True):
        assert caption.claim.holds(book.scenes[index])
    stored = torch.from_numpy(book.codes.astype(np.int64))
    assert torch.equal(stored[-3:], torch.stack([codec.read(picture(scene))[1] for scene in book.scenes[-3:]]))


def test_no_question_is_about_a_held_out_scene(codec, book):
    """Captions and edits may lead to such scenes, but `evaluate.asked` asks about them."""
    held = {index for index, scene in enumerate(book.scenes) if w.held_out(scene.key())}
    marked = np.arange(len(book.scenes), dtype=np.int16)[:, None, None].repeat(8, 1).repeat(8, 2)
    names = PictureBook(book.scenes, book.captions, book.edits, marked)     # the codes tell which scene it is
    maker, rng = ExampleMaker(codec.text, codec.vocab, names, WORLD), np.random.default_rng(0)
    drawn = [maker.answer(rng).ids for _ in range(600)]
    asked = {int(ids[ids.tolist().index(codec.vocab.boi) + 1]) - codec.vocab.image_offset for ids in drawn}
    assert len(held) > 5 and len(asked) > 100
    assert not asked & held
