"""What every variant of a slot promises, checked for whatever stands in the tables."""

import math
from itertools import pairwise

import pytest
import torch
from PIL import Image

from dimoo.blocks import BLOCKS, LeftToRight, WholeCanvas, whole_blocks
from dimoo.cache import CACHES, SELECTIONS, KVStore, MaxLogitCache
from dimoo.canvas import Canvas, Row
from dimoo.guidance import GUIDERS, NestedGuidance, active
from dimoo.model import MODELS, HashDenoiser
from dimoo.sampling import ANNEALINGS, CONFIDENCES, NOISES, QUOTAS, STOPPING, RandomStream, Scheduler, denoise
from dimoo.tasks import EDIT_KINDS, TASKS
from dimoo.tasks.edit import PICTURES
from dimoo.text import SYSTEM_PROMPTS
from tokenizers_vq import TOKENIZERS, ImageTokenizer

# What a variant needs to be built, where its defaults do not do.
OPTIONS = {"interval": {"guider": NestedGuidance(), "start": 0.25, "stop": 0.75}}
BRANCHES = {"cond", "no_text", "no_image", "uncond"}


def mixed_rows(vocab):
    """A text with fixed words inside, one that is full, one that is all masks."""
    answers = [[6, 1, 1, 9, 1, 1, 1, 10, 1, 7], [6, 9, 9, 7], [6, 1, 1, 1, 1, 1, 7]]
    conditions = {name: torch.arange(8, 11 + k) for k, name in enumerate(sorted(BRANCHES))}
    return [Row(torch.tensor(answer), conditions, vocab.everything) for answer in answers]


def seeds(rows):
    return [(5, k) for k in range(len(rows))]


@pytest.mark.parametrize("quota", QUOTAS.values(), ids=QUOTAS)
def test_commits_add_up_to_the_masks(quota):
    for masks in range(41):
        for steps in range(1, 65):
            commits = quota(masks, steps)
            assert (len(commits), sum(commits)) == (steps, masks), (masks, steps)
            assert min(commits) >= 0, (masks, steps)
            assert all(isinstance(count, int) for count in commits)


@pytest.mark.parametrize("name", GUIDERS)
def test_guider_weights_sum_to_one(name):
    guider = GUIDERS[name](**OPTIONS.get(name, {}))
    assert guider.branches[0] == "cond" and set(guider.branches) <= BRANCHES
    assert len(set(guider.branches)) == len(guider.branches)
    for progress in (step / 64 for step in range(64)):
        weights = guider.weights(progress)
        assert len(weights) == len(guider.branches)
        assert math.isclose(sum(weights), 1)
        assert 1 <= active(weights) <= len(weights)


@pytest.mark.parametrize("anneal", ANNEALINGS.values(), ids=ANNEALINGS)
def test_annealing_starts_at_one_and_never_rises(anneal):
    heats = [anneal(step / 64) for step in range(65)]
    assert heats[0] == 1
    assert all(1 >= a >= b >= 0 for a, b in pairwise(heats))


@pytest.mark.parametrize("confidence", CONFIDENCES.values(), ids=CONFIDENCES)
def test_a_surer_distribution_has_more_confidence(confidence):
    shares = torch.tensor([[0.96, 0.02, 0.01, 0.01], [0.7, 0.1, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1], [0.25] * 4])
    score = confidence(shares.log()[None], torch.zeros(1, 4, dtype=torch.long))
    assert score.shape == (1, 4)
    assert (score.diff() < 0).all()
    certain = torch.tensor([[[0.0, -torch.inf, -torch.inf, -torch.inf]]])
    best = confidence(certain, torch.zeros(1, 1, dtype=torch.long))
    assert best.isfinite().all() and best[0, 0] >= score.max()


@pytest.mark.parametrize("confidence", CONFIDENCES.values(), ids=CONFIDENCES)
def test_confidence_does_not_depend_on_other_rows(confidence):
    log_p = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    ids = log_p.argmax(-1)
    together = confidence(log_p, ids)
    assert torch.equal(together[1:, 2:4], confidence(log_p[1:, 2:4], ids[1:, 2:4]))


@pytest.mark.parametrize("name", NOISES)
def test_noise_depends_on_seed_step_and_position_only(name):
    noise, rows = NOISES[name](), torch.tensor([[4, 9, 2], [9, 4, 0]])
    batch, alone = RandomStream([(3, 0), (0, 1)]), RandomStream([(0, 1)])
    token, rank = noise.token(batch, 5, rows, 11), noise.rank(batch, 5, rows)
    assert (token.shape, rank.shape) == ((2, 3, 11), (2, 3))
    assert token.dtype == rank.dtype == noise.dtype
    assert token.isfinite().all() and rank.isfinite().all()
    noise.token(alone, 8, rows[:1], 100)  # whatever was drawn before
    assert torch.equal(token[1:, 1:2], noise.token(alone, 5, rows[1:, 1:2], 11))
    assert torch.equal(rank[1:, :1], noise.rank(alone, 5, rows[1:, :1]))
    assert torch.equal(token[..., :4], noise.token(batch, 5, rows, 4))
    others = [noise.token(batch, 6, rows, 11), noise.token(batch, 5, rows + 1, 11), token.flip(0)]
    assert not any(torch.equal(token, other) for other in others)
    assert not torch.equal(token[..., 0], rank)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("steps", [1, 3, 8, 50])
def test_windows_hold_every_mask_once(vocab, name, steps):
    canvas = Canvas(mixed_rows(vocab), vocab, [(0, 0)] * 3)
    windows = list(BLOCKS[name](steps=steps).windows(canvas))
    held = sum((window.open & canvas.editable).long() for window in windows)
    assert torch.equal(held, canvas.editable.long())
    for window in windows:
        assert window.counts == (window.open & canvas.editable).sum(1).tolist()
        assert len(window.steps) == 3 and all(1 <= count <= steps for count in window.steps)


def test_steps_that_do_not_divide_go_to_the_first_blocks(vocab):
    row = Row(torch.full((9,), vocab.mask), {}, vocab.everything)
    for steps, shares in ((8, [3, 3, 2]), (7, [3, 2, 2]), (2, [1, 1, 1])):
        windows = LeftToRight(steps, 3).windows(Canvas([row], vocab, [(0, 0)]))
        assert [window.steps for window in windows] == [[share] for share in shares]


@pytest.mark.parametrize(("length", "block"), [(3, 8), (8, 8), (24, 8), (5, 1)])
def test_lengths_that_divide(length, block):
    LeftToRight(block_length=block).check(length)
    assert whole_blocks(length, block) == length


def test_a_length_that_does_not_divide_is_refused_with_those_that_do():
    words = "10 tokens .* blocks of 4; allowed: lengths up to 4 .* such as 8 and 12, or block lengths 1, 2, 5, 10"
    with pytest.raises(ValueError, match=words):
        LeftToRight(block_length=4).check(10)
    assert whole_blocks(10, 4) == 8


def test_blocks_of_several_windows_hold_every_mask_once_too(vocab):
    canvas = Canvas(mixed_rows(vocab), vocab, [(0, 0)] * 3)
    windows = list(LeftToRight(6, 2).windows(canvas))
    assert [window.counts for window in windows] == [[2, 0, 2], [2, 0, 2], [2, 0, 1]]
    assert [window.steps for window in windows] == [[2, 6, 2]] * 3
    held = sum(window.open.long() for window in windows)
    assert torch.equal(held, canvas.editable.long())


@pytest.mark.parametrize("name", STOPPING)
def test_no_row_is_done_while_a_mask_stands_before_its_end(vocab, name):
    generator, stop, stopped = torch.Generator().manual_seed(0), STOPPING[name](), 0
    for _ in range(200):
        row = Row(torch.full((8,), vocab.mask), {}, vocab.everything)
        canvas = Canvas([row, row], vocab, [(0, 0)] * 2)
        choice = torch.tensor([vocab.mask, vocab.pad, vocab.eoa, 9, 10, 11, 12, 13, 14])
        canvas.ids = choice[torch.randint(0, 9, canvas.ids.shape, generator=generator)]
        everything = stop(canvas)
        for ids, done in zip(canvas.ids.tolist(), canvas.done.tolist(), strict=True):
            ends = [k for k, token in enumerate(ids) if token in vocab.ends]
            assert not done or (ends and vocab.mask not in ids[: ends[0]])
        left = ~canvas.done & canvas.masked.any(1)
        assert not (everything and left.any())
        stopped += everything
    assert (stopped > 0) == (name != "never-early")


@pytest.mark.parametrize("select", SELECTIONS.values(), ids=SELECTIONS)
def test_a_selection_names_each_row_once(select):
    generator, lengths = torch.Generator().manual_seed(1), [40, 7, 23, 2]
    real = torch.arange(40) < torch.tensor(lengths)[:, None]
    for share in (0.1, 0.5, 0.9):
        best = torch.randn(4, 40, generator=generator)
        changed, masked = (real & (torch.rand(4, 40, generator=generator) < 0.3) for _ in range(2))
        together = select(best, changed, masked, lengths, share)
        for number, (rows, length) in enumerate(zip(together.tolist(), lengths, strict=True)):
            chosen = list(dict.fromkeys(rows))
            assert set(chosen) <= set(range(length)) and abs(len(chosen) - share * length) <= 1
            assert rows[len(chosen) :] == chosen[:1] * (len(rows) - len(chosen))  # then the first, again and again
            alone = (x[number : number + 1, :length] for x in (best, changed, masked))
            assert select(*alone, [length], share)[0].tolist() == chosen


def tokenizer_of(name, request):
    if name == "vq":
        return request.getfixturevalue("tiny").codec.images
    return TOKENIZERS[name]()


@pytest.mark.parametrize("name", TOKENIZERS)
def test_pixels_become_codes_and_codes_pixels(name, request):
    images = tokenizer_of(name, request)
    assert isinstance(images, ImageTokenizer)
    height, width = 2 * images.ratio, 3 * images.ratio
    pixels = torch.rand(4, 3, height, width, generator=torch.Generator().manual_seed(2))
    codes = images.encode(pixels)
    assert (codes.shape, codes.dtype) == ((4, 2, 3), torch.int64)
    assert codes.min() >= 0 and codes.max() < images.codebook_size
    assert codes.unique().numel() > 1
    decoded = images.decode(codes)
    assert (decoded.shape, decoded.dtype) == (pixels.shape, torch.float32)
    assert decoded.min() >= 0 and decoded.max() <= 1
    assert torch.equal(images.encode(pixels[2:3]), codes[2:3])
    torch.testing.assert_close(images.decode(codes[2:3]), decoded[2:3])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_what_is_no_picture_is_refused(name, request):
    images = tokenizer_of(name, request)
    side = images.ratio
    for shape in [(3, side, side), (1, 1, side, side), (1, 3, side + 1, side), (1, 3, side, 0)]:
        with pytest.raises(ValueError, match=r"multiples of|shape"):
            images.encode(torch.zeros(shape))
    for codes in [torch.zeros(2, 2), torch.full((1, 2, 2), -1), torch.full((1, 2, 2), images.codebook_size)]:
        with pytest.raises(ValueError, match=r"codes must"):
            images.decode(codes.long())


def model_of(name, small_llada, vocab):
    return {"llada": small_llada, "toy": HashDenoiser(vocab.size)}[name]


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_selected_logits_are_a_slice_of_all(name, small_llada, vocab):
    model = model_of(name, small_llada, vocab)
    ids = torch.randint(0, vocab.size, (3, 14), generator=torch.Generator().manual_seed(4))
    key_mask = torch.arange(14) < torch.tensor([14, 9, 12])[:, None]
    full = model(ids, key_mask=key_mask).logits
    rows = torch.tensor([[0, 5, 13], [8, 2, 3], [11, 0, 6]])
    for columns in (vocab.codes, slice(3, 4), None):
        asked = model(ids, key_mask=key_mask, logit_rows=rows, columns=columns).logits
        expected = full.gather(1, rows[..., None].expand(-1, -1, vocab.size))[..., columns or slice(None)]
        torch.testing.assert_close(asked, expected, atol=1e-6, rtol=1e-6)
    store = KVStore()
    model(ids, key_mask=key_mask, kv=store)
    partial = model(ids, key_mask=key_mask, kv=store, rows=rows, columns=vocab.codes).logits
    expected = full.gather(1, rows[..., None].expand(-1, -1, vocab.size))[..., vocab.codes]
    torch.testing.assert_close(partial, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_padding_and_other_rows_do_not_matter(name, small_llada, vocab):
    model = model_of(name, small_llada, vocab)
    ids = torch.randint(0, vocab.size, (2, 14), generator=torch.Generator().manual_seed(4))
    key_mask = torch.arange(14) < torch.tensor([14, 9])[:, None]
    batch = model(ids, key_mask=key_mask).logits
    torch.testing.assert_close(batch[1:, :9], model(ids[1:, :9]).logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(batch[:1], model(ids[:1]).logits, atol=1e-5, rtol=1e-5)
    other = ids.clone()
    other[1, 8] = (other[1, 8] + 1) % vocab.size
    assert (model(other, key_mask=key_mask).logits[1, 0] - batch[1, 0]).abs().max() > 1e-3


MAKE = {
    "generate": lambda picture: {"prompt": "a star", "height": 16, "width": 24},
    "edit": lambda picture: {"prompt": "make it red", "images": [picture]},
    "inpaint": lambda picture: {
        "prompt": "a star",
        "image": picture,
        "mask": Image.new("L", picture.size, 255).crop((8, 8, 72, 72)),
    },
    "ask": lambda picture: {"question": "what is it?", "images": [picture], "length": 5},
    "write": lambda picture: {"prompt": "what is a star?", "length": 5, "history": [("hello", "hi")]},
    "infill": lambda picture: {"parts": ["a ", 2, " circle"]},
    "rewrite": lambda picture: {"text": "a red circle", "keep": ["circle"], "reopen": [(2, 5)]},
}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_makes_a_row_and_reads_its_answer(name, tiny, photo):
    task, vocab = TASKS[name](**MAKE[name](photo)), tiny.codec.vocab
    row = task.prepare(tiny.codec)
    ends = [int(row.answer[0]), int(row.answer[-1])]
    assert ends == [vocab.boa, vocab.eoa]
    masked = row.answer == vocab.mask
    assert masked.any() and not masked[[0, -1]].any()
    assert "cond" in row.conditions and set(row.conditions) <= BRANCHES
    for ids in (row.answer, *row.conditions.values()):
        assert ids.dtype == torch.int64 and ids.min() >= 0 and ids.max() < vocab.size
    assert all(not (ids == vocab.mask).any() for ids in row.conditions.values())
    filled = row.answer.masked_fill(masked, row.columns.stop - 1)
    answer = task.finish(tiny.codec, filled)
    if task.kind != "text":
        assert row.columns == vocab.codes
        assert answer.size == (row.grid[1] * 8, row.grid[0] * 8)
    else:
        assert row.columns == vocab.everything and row.grid is None
        assert isinstance(answer, str)


@pytest.mark.parametrize("kind", EDIT_KINDS)
def test_every_kind_of_edit_has_a_prompt_and_all_branches(kind, tiny, photo):
    assert EDIT_KINDS[kind][0] in SYSTEM_PROMPTS
    count = PICTURES.get(kind, 1)
    row = TASKS["edit"]("do the thing", [photo] * count, edit=kind).prepare(tiny.codec)
    assert set(row.conditions) == BRANCHES
    assert len({tuple(ids.tolist()) for ids in row.conditions.values()}) == 4
    picture = tiny.codec.vocab.lay_out(tiny.codec.read(photo)[1]).tolist()
    for branch, ids in row.conditions.items():
        spoken = ids.tolist()
        both = picture * count
        shown = any(spoken[k : k + len(both)] == both for k in range(len(spoken)))
        assert shown == (branch in ("cond", "no_text"))


SLOTS = [
    *[{"scheduler": Scheduler(quota=quota)} for quota in QUOTAS.values()],
    *[{"scheduler": Scheduler(confidence=confidence)} for confidence in CONFIDENCES.values()],
    *[{"scheduler": Scheduler(anneal=anneal)} for anneal in ANNEALINGS.values()],
    *[{"scheduler": Scheduler(noise=noise())} for noise in NOISES.values()],
    *[{"blocks": blocks(steps=5)} for blocks in BLOCKS.values()],
    {"blocks": LeftToRight(6, 2)},
    *[{"cache": cache()} for cache in CACHES.values()],
    *[{"cache": MaxLogitCache(0.5, 0.2, 3, select)} for select in SELECTIONS.values()],
    *[{"guider": GUIDERS[name](**OPTIONS.get(name, {}))} for name in GUIDERS],
    *[{"stop": stop()} for stop in STOPPING.values()],
]


@pytest.mark.parametrize("slots", SLOTS, ids=lambda slots: "-".join(slots))
def test_fixed_and_committed_positions_never_change(slots, vocab, small_llada):
    rows = mixed_rows(vocab)
    canvas = Canvas(rows, vocab, seeds(rows))
    states = [canvas.ids.clone()]
    given = {"scheduler": Scheduler(), "blocks": WholeCanvas(5)} | slots
    denoise(canvas, small_llada, **given, on_step=lambda step: states.append(canvas.ids.clone()))
    for before, after in pairwise(states):
        settled = before != vocab.mask
        assert torch.equal(before[settled], after[settled])
        assert (after != before).any()
    if "stop" not in slots:
        assert not canvas.masked.any()
    assert not (canvas.ids[canvas.editable & ~canvas.masked] == vocab.mask).any()
