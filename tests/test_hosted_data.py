"""Pictures and texts to parquet and to batches: layouts of the tasks, bad lines, stopped runs, the order of batches."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from PIL import Image

from dimoo.tasks import Ask, Edit, TextToImage
from dimoo_training import parquet
from dimoo_training.hosted_data import FEATURES, Sides, tokenise
from dimoo_training.parquet import ParquetSource, example
from dimoo_training.recipes import FineTune

TOY = FineTune(steps=4, batch=1, accumulate=2)
ITEMS = [
    {"task": "text_to_image", "prompt": "a hill", "image": "p.png", "id": "first"},
    {"task": "edit", "prompt": "remove the hill", "images": ["p.png"], "image": "q.png", "edit": "edit_remove"},
    {"task": "understanding", "prompt": "what is it?", "images": ["p.png"], "answer": "a hill behind a lake"},
    {"task": "edit", "prompt": "-", "images": ["p.png", "q.png"], "image": "q.png", "edit": "image_ref_transfer"},
]
BAD = [
    ("{nonsense", "not JSON"), ('{"task": "sing"}', "text_to_image, edit, understanding"), ("[1]", '"task" has to be'),
    ('{"task": "edit", "prompt": "x", "images": ["p.png"]}', 'edit needs "image"'),
    ('{"task": "text_to_image", "prompt": "", "image": "p.png"}', 'needs "prompt"'),
    ('{"task": "text_to_image", "prompt": "x", "image": "absent.png"}', "absent.png"),
    ('{"task": "edit", "prompt": "x", "images": ["p.png"], "image": "q.png", "edit": "melt"}', "'melt'; allowed: edit"),
    ('{"task": "edit", "prompt": "x", "images": ["p.png", "q.png"], "image": "q.png"}', "takes 1 picture(s), got 2"),
    ('{"task": "understanding", "prompt": "x", "images": [3], "answer": "y"}', "list of paths"),
]


@pytest.fixture
def data(photo, tmp_path):
    photo.save(tmp_path / "p.png")
    photo.rotate(180).save(tmp_path / "q.png")
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    return tmp_path / "data.jsonl"


def records(folder):
    return list(Dataset.from_parquet([str(path) for path in sorted(folder.glob("part-*.parquet"))]))


def quiet(words):
    pass


def test_a_record_is_the_sequence_of_its_task(data, tiny, photo, tmp_path):
    assert tokenise(data, tiny, tmp_path / "out", log=quiet) == (4, 0)
    drawn, edited, asked, styled = records(tmp_path / "out")
    assert [r["id"] for r in (drawn, edited)] == ["first", "2"] and list(drawn) == list(FEATURES)
    size = drawn["answer_image"][0]
    assert (size["height"], size["width"], size["length"]) == (32, 32, 16)          # the checkpoint draws 32x32
    assert min(size["codes"]) >= tiny.codec.vocab.image_offset
    turned = photo.rotate(180)
    rows = [
        (edited, Edit("remove the hill", [photo], edit="edit_remove").prepare(tiny.codec)),
        (styled, Edit("", [photo, turned], edit="image_ref_transfer").prepare(tiny.codec)),
        (asked, Ask("what is it?", [photo], length=32).prepare(tiny.codec)),
        (drawn, TextToImage("a hill", 32, 32).prepare(tiny.codec)),
    ]
    v, branches = tiny.codec.vocab, set()
    for record, row in rows:
        for seed in range(12):
            ids, made = None, example(record, tiny.codec.text, v, 8, np.random.default_rng(seed))
            for name in row.conditions:
                ids = torch.cat([row.conditions[name], row.answer]).numpy()
                if len(ids) == len(made.ids) and (ids == made.ids)[ids != v.mask].all():
                    branches.add(name)
                    break
            else:
                raise AssertionError(record["task"])
            assert ((made.weight > 0) == (ids == v.mask)).all() and made.noise.any()
        window = int((row.answer == v.mask).sum())
        words = len(tiny.codec.text.encode(record["answer"]))
        wanted = max(len(ids) for ids in row.conditions.values()) + len(row.answer)
        assert record["len"] == wanted - (window - words if words else 0)
    assert branches > {"cond"}
    codes = tiny.codec.read(turned)[1].flatten().tolist()
    assert edited["answer_image"][0]["codes"] == [code + v.image_offset for code in codes]


def test_bad_lines_are_named_and_left_out(data, tiny, tmp_path):
    lines = [line for bad, _ in BAD for line in (bad, json.dumps(ITEMS[0]))]
    data.write_text("\n".join([*lines, "", json.dumps(ITEMS[2])]) + '\n{"task": "te')
    said = []
    assert tokenise(data, tiny, tmp_path / "out", log=said.append, part=5) == (len(BAD) + 1, len(BAD) + 1)
    named = [words for words in said if "line" in words]
    for number, (_, words) in enumerate(BAD):
        assert f"line {2 * number + 1}:" in named[number] and words in named[number]
    assert f"line {len(lines) + 3}: not JSON" in named[-1]          # torn while it was being written
    kept = [line for path in sorted((tmp_path / "out").glob("*.bad")) for line in path.read_text().splitlines()]
    assert kept == named and len(records(tmp_path / "out")) == len(BAD) + 1


def test_a_stopped_run_goes_on_with_the_next_part(data, tiny, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "out"
    tokenise(data, tiny, whole, part=1, log=quiet)
    tokenise(data, tiny, out, part=1, log=quiet)
    (out / "part-00002.parquet").unlink()
    (out / "part-00002.part").write_text("torn")
    said = []
    assert tokenise(data, tiny, out, part=1, log=said.append) == (4, 0)
    assert [words.split(":")[0] for words in said] == ["part-00002.parquet"]
    assert records(out) == records(whole) and not list(out.glob("*.part"))
    tiny.vqvae.quantize.embedding.weight.data[0] += 1
    with pytest.raises(ValueError, match=r"made_of.json: codebook is .* there and .* here"):
        tokenise(data, tiny, out, part=1, log=quiet)


@pytest.mark.parametrize(("size", "wanted"), [
    ((100, 100), (512, 512)), ((600, 700), (592, 688)), ((3000, 500), (2048, 512)), ((2000, 2000), (1024, 1024)),
])  # fmt: skip
def test_pictures_that_are_asked_about_keep_their_size_where_they_can(size, wanted):
    assert Sides(1024, 512).to_ask(Image.new("RGB", size), 16) == wanted


def test_a_picture_that_is_too_large_is_a_bad_line():
    with pytest.raises(ValueError, match=r"2048x2048.*2048\^2"):
        Sides(1024, 512).to_ask(Image.new("RGB", (2048, 2048)), 16)


# Batches


def numbered(tmp_path, tiny, lengths):
    """Data of one drawing and answers of these lengths, in words that tell their number."""
    v = tiny.codec.vocab
    image = {"codes": [v.image_offset] * 16, "length": 16, "height": 32, "width": 32}
    rows = [{"id": str(i), "task": "understanding", "system": "understanding", "user": str(i), "user_images": [],
             "answer": "7" * n, "answer_image": [], "len": n} for i, n in enumerate(lengths)]  # fmt: skip
    rows.append(rows[0] | {"task": "text_to_image", "answer_image": [image], "system": "text_to_image", "answer": ""})
    Dataset.from_list(rows, features=FEATURES).to_parquet(tmp_path / "part-00000.parquet")
    return lambda recipe=TOY, **given: ParquetSource(tmp_path, tiny.codec.text, v, 8, recipe, **given)


def test_global_batches_are_of_one_task_and_of_near_lengths(tmp_path, tiny):
    make = numbered(tmp_path, tiny, [5 * (i % 20) + 1 for i in range(40)])
    source = make(replace(TOY, batch=2, chunk=2))                   # 4 examples a step, shuffled among 8
    order = source.order(0)
    assert order.shape == (11, 4) and source.steps_an_epoch == 11
    assert sorted(set(order.flatten().tolist())) == list(range(41))
    spans = []
    for rows in order:
        assert len(set(source.tasks[rows])) == 1
        spans.append(np.ptp(source.lengths[rows]))
    assert max(spans) <= 5 * 4
    assert (source.order(1) != order).any() and (make(source.recipe).order(0) == order).all()


def test_processes_share_a_step_out_and_a_step_follows_from_its_number(tmp_path, tiny, monkeypatch):
    make, seen = numbered(tmp_path, tiny, range(1, 9)), []
    monkeypatch.setattr(parquet, "example", lambda record, *given: seen.append(record["id"]) or example(record, *given))
    whole, halves = make(replace(TOY, batch=2)), [make(TOY, world=2, rank=rank) for rank in (0, 1)]
    assert whole.share == halves[0].share == 4
    for step in (0, 1, whole.steps_an_epoch + 1):
        made = [list(source.batches(step, np.random.default_rng(5))) for source in (whole, *halves, halves[0])]
        assert [len(batches) for batches in made] == [2] * 4        # accumulation
        assert all(torch.equal(a["input_ids"], b["input_ids"]) for (_, a), (_, b) in zip(made[1], made[3], strict=True))
        together, shared = seen[:4], seen[4:8]
        assert sorted(together) == sorted(shared) == sorted(whole.data[int(row)]["id"] for row in
                                                            whole.order(step // whole.steps_an_epoch)
                                                            [step % whole.steps_an_epoch])  # fmt: skip
        seen.clear()


def test_data_of_another_vocabulary_is_refused(tmp_path, tiny):
    make = numbered(tmp_path, tiny, [3])
    record = make().data[1]
    record["answer_image"][0]["codes"][3] = 2
    with pytest.raises(ValueError, match=r"record '0'.*tokenise the data again"):
        example(record, tiny.codec.text, tiny.codec.vocab, 8, np.random.default_rng(0))
    with pytest.raises(ValueError, match="dimoo train tokenize"):
        ParquetSource(tmp_path / "empty", tiny.codec.text, tiny.codec.vocab, 8, TOY)
