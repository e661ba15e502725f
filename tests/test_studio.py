"""The studio without a browser: history, what is shown, marks, and the page's own parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("gradio", reason="needs the extra [app]")

from dimoo.cli.session import Session
from dimoo.engine import Engine
from dimoo.tasks import Ask
from dimoo.tasks.text import within
from dimoo_app.studio import History, build, figures, recipes, samples
from dimoo_app.studio.ask import turns
from dimoo_app.studio.controls import Sampling, sizes
from dimoo_app.studio.paint import hole
from dimoo_app.studio.pieces import OPEN, pieces, so_far
from dimoo_training import world as w
from dimoo_training.world.scene import smallest_world


def test_history_survives_and_users_do_not_see_each_other(tmp_path, photo):
    history = History(tmp_path / "h")
    source = history.source(photo)
    made_of = {"prompt": "a star", "seed": 1, "index": 0, "images": [vars(source)]}
    kept = [history.keep(photo, made_of | {"prompt": f"a star {k}"}) for k in range(3)]
    (tmp_path / "h" / "foreign.png").write_bytes(b"no picture")
    photo.save(tmp_path / "h" / "plain.png")
    again = History(tmp_path / "h")
    assert set(again.recent()) == set(kept) and again.recent(words="STAR 1") == [kept[1]]
    assert len(again.recent(2)) == 2
    assert again.before(kept[0]).tobytes() == photo.tobytes()
    assert again.source(photo) == source and len(list((tmp_path / "h" / "sources").iterdir())) == 1
    other = again.of("../eve")
    assert other.recent() == [] and other.folder.parent == again.folder
    assert again.of(None) is again and again.of("a").folder != again.of("A b").folder


def test_shown_words_are_escaped():
    evil = '<img src=x onerror="alert(1)">'
    figure = figures.Figure(Image.new("RGB", (8, 8)), evil)
    for html in (figures.facts({"prompt": evil}), figures.stage([figure]), figures.meter(0, 1, evil),
                 figures.empty(evil, evil), figures.done(evil)):  # fmt: skip
        assert "<img src=x" not in html and "&lt;img" in html


def test_heat_and_marks():
    grid = torch.tensor([[0.0, 1.0], [torch.nan, 0.5]])
    picture = figures.heat(grid)
    assert picture.size == (2, 2) and picture.getpixel((0, 1)) == (128, 128, 128)
    assert picture.getpixel((0, 0)) != picture.getpixel((1, 0))
    shown = figures.marked(Image.new("RGB", (16, 8), "white"), torch.tensor([[True, False]]))
    assert shown.size == (384, 192)
    assert shown.getpixel((100, 100)) != (255, 255, 255) == shown.getpixel((300, 100))


def test_positions_of_marked_tokens():
    assert recipes.read_marks(" 3-5, 9 ;1", 9) == {1, 3, 4, 5, 9}
    assert recipes.say_marks({1, 3, 4, 5, 9}) == "1, 3-5, 9"
    assert recipes.read_marks("", 9) == set()
    for text, words in (("x", "got 'x'"), ("0", "between 1 and 9"), ("5-3", "between 1 and 9"), ("3-", "got '3-'")):
        with pytest.raises(ValueError, match=words):
            recipes.read_marks(text, 9)


def test_keeping_and_opening_tokens(tiny):
    first = tiny.run([Ask("a star", length=6)], output_type="tokens", temperature=1.0, seed=1).texts[0]
    answer = within(tiny.codec, first).tolist()
    keep = recipes.kept(answer, {2, 3}, False, tiny.codec.vocab.mask)
    assert keep == {1: answer[1], 2: answer[2]}
    task = recipes.Kept("a star", length=6, keep=keep)
    second = tiny.run([task], output_type="tokens", temperature=1.0, seed=2).texts[0]
    assert [int(within(tiny.codec, second)[place]) for place in keep] == list(keep.values())
    alike = tiny.run([recipes.Kept("a star", length=6)], output_type="tokens", temperature=1.0, seed=1).texts[0]
    assert torch.equal(alike, first), "nothing kept is the plain answer"
    rest = recipes.kept(answer, {2, 3}, True, tiny.codec.vocab.mask)
    assert set(rest) == set(range(6)) - {1, 2}


def test_recipes_become_settings(tiny):
    for recipe in recipes.recipes(tiny.defaults).values():
        result = tiny.run([recipes.Kept("a star", length=6)], **recipe(6))
        assert result.forwards >= 1


def test_pieces_of_an_unfinished_answer(tiny):
    vocab = tiny.codec.vocab
    star = tiny.codec.text.encode("a star")
    ids = torch.tensor([vocab.boa, *star, vocab.mask, vocab.mask, *star, vocab.eoa, *star, vocab.eoa])
    found = pieces(tiny.codec, ids)
    assert [piece.open for piece in found] == [False] * len(star) + [True] * 2 + [False] * (2 * len(star) + 1)
    assert found[-1].over and not found[0].over
    assert so_far(tiny.codec, ids) == f"a star {OPEN * 2} a star"


def test_a_painted_mask_comes_back_at_the_pictures_size(tmp_path, photo):
    photo.save(tmp_path / "photo.png")
    layer = Image.new("RGBA", (512, 512), (0, 0, 0, 0))
    layer.paste((13, 148, 136, 255), (0, 0, 256, 128))
    value = {"background": photo, "layers": [layer], "composite": None}
    picture, mask = hole(value, tmp_path / "photo.png", (0, 0, 0, 0))
    assert picture.tobytes() == photo.tobytes()
    assert mask.getbbox() == (0, 0, 32, 16) and mask.getpixel((31, 15)) == 255
    picture, mask = hole(value, tmp_path / "photo.png", (8, 0, 0, 16))
    assert picture.size == mask.size == (72, 80)
    assert [mask.getpixel(at) for at in ((0, 0), (39, 15), (41, 15), (20, 79))] == [255, 255, 0, 255]


def test_a_conversation_becomes_turns():
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "text", "text": "b"}]}]
    assert turns(said) == [("a", "b")]


def test_sizes_fit_the_grid(tiny):
    for height, width in sizes(tiny.defaults, 8).values():
        assert height % 8 == width % 8 == 0
    assert next(iter(sizes(tiny.defaults, 8).values())) == (tiny.defaults.height, tiny.defaults.width)


def test_the_page_is_built_and_its_examples_are_there(tiny, tmp_path):
    with Engine(tiny) as engine:
        page = build(Session(tiny, "tiny", "0" * 16, "cpu", "float32"), engine, History(tmp_path))
    labels = [block.label for block in page.blocks.values() if type(block).__name__ == "Tab"]
    assert labels == ["Create", "Edit", "Paint", "Ask", "Text", "Compare", "History"]
    shown = [samples.DRAWINGS, samples.EDITS, samples.HOLES, samples.QUESTIONS]
    for name, _ in (one for given in shown for one in given):
        shown = np.asarray(Image.open(samples.picture(name)))
        scene = w.parse(shown).scene                            # what the embedded model was trained on
        assert shown.shape == (64, 64, 3) and smallest_world(scene) == w.WORLDS["first"]


def test_untouched_controls_are_left_to_the_checkpoint(tiny):
    import gradio as gr

    with gr.Blocks():
        sampling = Sampling.build("x", tiny.defaults)
    settings = sampling.settings(sampling.own)
    assert settings.num_inference_steps is None and settings.temperature is None
    with gr.Blocks():
        drawing = Sampling.build("y", tiny.defaults, search=True)
    for touched, wanted in (({"search": "hierarchical"}, (None, None)), ({"best_of": 4.0}, (4, None)),
                            ({"best_of": 4, "search": "hierarchical"}, (4, "hierarchical"))):  # fmt: skip
        values = [touched.get(name, own) for name, own in zip(drawing.names, drawing.own, strict=True)]
        made = drawing.settings(values)
        assert (made.best_of, made.search) == wanted
    values = [3 if name == "num_inference_steps" else own
              for name, own in zip(sampling.names, sampling.own, strict=True)]  # fmt: skip
    assert sampling.settings(values).num_inference_steps == 3
