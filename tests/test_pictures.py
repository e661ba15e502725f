"""Books of picture tasks: what stands in them, what never may, and that their codes are those of their pictures."""

import pickle
from collections import Counter

import numpy as np
import pytest
import torch

from dimoo.tasks.edit import EDIT_KINDS, PICTURES
from dimoo_training import picture_tasks
from dimoo_training import world as w
from dimoo_training.picture_tasks import CAPTION_MIX, EDIT_MIX, MAPS, PICTURE_TASKS, Map, draw_from, paint
from dimoo_training.pictures import PictureBook, make_book, object_codes, pixels_of
from dimoo_training.world.maps import draw_map, read_map, stamps
from tokenizers_vq import ToyImageTokenizer

SIZES = dict.fromkeys(PICTURE_TASKS, 12)


@pytest.fixture(scope="module")
def book():
    return make_book(w.WORLDS["full"], SIZES, ToyImageTokenizer(), np.random.default_rng(0))


def test_a_book_has_the_tasks_that_were_asked_for_and_their_codes(book):
    assert {kind: len(records) for kind, records in book.records.items()} == SIZES
    pages = [page for records in book.records.values() for r in records for page in (*r.sources, r.target)]
    assert sorted(pages) == list(range(len(book.pictures)))
    assert book.codes.shape == (len(pages), 8, 8) and book.codes.dtype == np.int16
    some = [0, len(pages) // 2, len(pages) - 1]
    fresh = ToyImageTokenizer().encode(pixels_of([book.pictures[page] for page in some]))
    assert torch.equal(torch.from_numpy(book.codes[some].astype(np.int64)), fresh)


def test_what_is_said_is_true_of_the_answer(book):
    """By kind: maps are maps of the source, references fulfil their restyling, edits change something."""
    pictures = book.pictures
    for kind, records in book.records.items():
        for r in records:
            sources, target = [pictures[page] for page in r.sources], pictures[r.target]
            if kind in ("draw", "full"):
                assert r.system == "text_to_image" and not sources and r.text
            elif kind == "dense":
                assert isinstance(target, Map) and sources == [target.scene] and r.system == "dense"
            elif kind == "control":
                assert isinstance(sources[0], Map) and sources[0].scene == target and r.text
            elif kind == "style":
                assert target == w.restyle(*sources)
            elif kind == "subject":
                assert any(thing.looks == sources[0].objects[0].looks for thing in target.objects)
            else:
                assert sources[0] != target and r.system == "edit"


@pytest.mark.parametrize("kind", PICTURE_TASKS)
def test_prompts_are_those_of_inference(kind, rng):
    for _ in range(5):
        task = PICTURE_TASKS[kind](w.WORLDS["full"], rng)
        if task.edit is None:
            assert task.prompt == ("text_to_image", task.text) and not task.sources
        else:
            system, fixed = EDIT_KINDS[task.edit]
            assert task.prompt == (system, fixed or task.text) and task.prompt[1]
            assert len(task.sources) == PICTURES.get(task.edit, 1)


def test_nothing_held_out_enters_a_book(monkeypatch):
    """Facts are checked where they are drawn; scenes that may be asked about are checked in the book."""
    drawn = []
    for name in ("train_caption", "train_edit", "train_scene", "train_reference"):
        function = getattr(w, name)
        monkeypatch.setattr(w, name, lambda *given, f=function: drawn.append(f(*given)) or drawn[-1])
    book = make_book(w.WORLDS["full"], SIZES, ToyImageTokenizer(), np.random.default_rng(3))
    assert len(drawn) == sum(SIZES.values())
    for fact in drawn:
        if isinstance(fact, w.Caption):
            assert not w.caption_held_out(fact)
        elif isinstance(fact, w.Reference):
            assert not w.held_out("+".join(scene.key() for scene in fact.sources))
        else:
            assert not w.held_out((fact if isinstance(fact, w.Scene) else fact.source).key())
    kinds = {type(fact).__name__ for fact in drawn}
    assert kinds == {"Caption", "Edit", "Scene", "Reference"}
    asked = book.scenes()
    held = [i for i, p in enumerate(book.pictures) if not isinstance(p, Map) and w.held_out(p.key())]
    maps = [i for i, p in enumerate(book.pictures) if isinstance(p, Map)]
    assert held and sorted([*asked, *held, *maps]) == list(range(len(book.pictures)))


def test_a_saved_book_is_the_same_book(book, tmp_path):
    book.made_of = ("full", 7)
    book.save(tmp_path / "book.pkl")
    plain = pickle.dumps(book)
    assert (tmp_path / "book.pkl").stat().st_size < 0.5 * len(plain)
    (tmp_path / "plain").write_bytes(plain)
    assert PictureBook.load(tmp_path / "plain").records == book.records
    (tmp_path / "plain").unlink()
    again = PictureBook.load(tmp_path / "book.pkl")
    assert again.pictures == book.pictures and again.records == book.records and again.made_of == ("full", 7)
    assert (again.codes == book.codes).all() and again.world == book.world
    assert [path.name for path in tmp_path.iterdir()] == ["book.pkl"]


def test_object_codes_are_the_cells_of_objects(rng):
    for scene in (w.WORLDS["full"].sample(rng) for _ in range(20)):
        differs = (w.render(scene) != w.render(w.Scene((), scene.background))).any(-1)
        cells = differs.reshape(4, 16, 4, 16).any((1, 3)).repeat(2, 0).repeat(2, 1)
        assert (object_codes(scene) == cells).all() and (object_codes(Map("mask", scene)) == cells).all()


def test_maps_are_pictures_too(rng):
    scene = w.WORLDS["full"].sample(rng, 3)
    assert (paint(scene) == w.render(scene)).all()
    for kind in MAPS.values():
        assert (paint(Map(kind, scene)) == draw_map(scene, kind)).all()
        assert read_map(paint(Map(kind, scene)), kind) == stamps(scene, kind)


def test_kinds_are_drawn_by_their_share(rng):
    counts = Counter(draw_from({"a": 1.0, "b": 3.0, "never": 0.0}, rng) for _ in range(4000))
    assert set(counts) == {"a", "b"} and abs(counts["a"] / 4000 - 0.25) < 0.03
    assert set(CAPTION_MIX) == set(w.FAMILIES) - {"full"} and set(EDIT_MIX) == set(w.EDIT_KINDS)


def test_a_world_of_one_size_has_no_resizing(rng, monkeypatch):
    monkeypatch.setattr(picture_tasks, "EDIT_MIX", {"resize": 1e9, "remove": 1.0})
    tasks = [PICTURE_TASKS["edit"](w.WORLDS["first"], rng) for _ in range(20)]
    assert {len(task.sources[0].objects) - len(task.target.objects) for task in tasks} == {1}
