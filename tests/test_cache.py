"""The Max-Logit cache recomputes what it says and nothing else, and forgets with its window."""

import pytest
import torch

from dimoo.blocks import LeftToRight, WholeCanvas
from dimoo.cache import CACHES, KVStore, MaxLogitCache, NoCache, PromptReuse, SourceReuse, changed_first, published
from dimoo.canvas import Canvas, Row
from dimoo.guidance import GuidanceInterval, TextGuidance, TextImageGuidance
from dimoo.model import HashDenoiser
from dimoo.sampling import Scheduler, denoise
from dimoo.sampling.quotas import even


class Counted:
    """A denoiser that keeps how many rows each pass computed, for how many logits, and which of each sequence."""

    def __init__(self, denoiser):
        self.denoiser, self.passes, self.chosen = denoiser, [], []

    def __getattr__(self, name):
        return getattr(self.denoiser, name)

    def __call__(self, input_ids, *, rows=None, **options):
        out = self.denoiser(input_ids, rows=rows, **options)
        length = input_ids.shape[1]
        self.passes.append((length if rows is None else rows.shape[1], out.logits.shape[1]))
        self.chosen += [] if rows is None else [[set(each) for each in rows.tolist()]]
        return out


def image_canvas(vocab, *grids):
    conditions = {"cond": torch.arange(8, 14), "uncond": torch.tensor([5, 8])}
    ends = torch.tensor([vocab.boa]), torch.tensor([vocab.eoa])
    answers = [torch.cat([ends[0], vocab.empty_image(*grid), ends[1]]) for grid in grids]
    rows = [Row(answer, conditions, vocab.codes, grid) for answer, grid in zip(answers, grids, strict=True)]
    return Canvas(rows, vocab, [(0, k) for k in range(len(rows))])


def passes_of(canvas, denoiser, cache, steps=10, **slots):
    counted = Counted(denoiser)
    slots = {"scheduler": Scheduler(quota=even), "blocks": WholeCanvas(steps), **slots}
    denoise(canvas, counted, cache=cache, **slots)
    return counted.passes


def test_partial_passes_compute_the_share_they_are_meant_to(vocab, small_llada):
    canvas = image_canvas(vocab, (4, 4))
    length = 6 + 2 + 2 + 20
    passes = passes_of(canvas, small_llada, MaxLogitCache(ratio=0.8, warmup=0.2, refresh=3))
    full = [rows == length for rows, _ in passes]
    #       warm-up: steps 0-2  then every third after step 2
    assert full == [True] * 3 + [False, False, True, False, False, True, False]
    assert {rows for rows, _ in passes if rows != length} == {round(0.2 * length)}


def test_no_cache_asks_for_open_rows_only(vocab, small_llada):
    passes = passes_of(image_canvas(vocab, (4, 4)), small_llada, NoCache(), steps=4)
    assert [logits for _, logits in passes] == [16, 12, 8, 4]
    assert {rows for rows, _ in passes} == {30}


def test_full_passes_are_no_dearer_than_without_a_cache(vocab, small_llada):
    passes = passes_of(image_canvas(vocab, (4, 4)), small_llada, MaxLogitCache(0.8, warmup=0.5, refresh=3), steps=4)
    assert [logits for _, logits in passes] == [16, 12, 8, round(0.2 * 30)]


def test_a_new_window_starts_afresh(vocab, small_llada):
    row = Row(torch.tensor([6, *[vocab.mask] * 8, 7]), {"cond": torch.arange(8, 18)}, vocab.everything)
    canvas = Canvas([row], vocab, [(0, 0)])
    passes = passes_of(canvas, small_llada, MaxLogitCache(0.9, 0, 100), blocks=LeftToRight(8, 4))
    assert [rows for rows, _ in passes] == [20, 2, 2, 2, 20, 2, 2, 2]


def test_a_longer_neighbour_does_not_have_other_rows_recomputed(vocab, small_llada):
    def chosen(*canvases):
        counted = [Counted(small_llada) for _ in canvases]
        slots = {"scheduler": Scheduler(quota=even, temperature=0), "blocks": WholeCanvas(6)}
        for canvas, denoiser in zip(canvases, counted, strict=True):
            denoise(canvas, denoiser, **slots, cache=MaxLogitCache(0.7, 0, 4))
        return [denoiser.chosen for denoiser in counted]

    (together,) = chosen(image_canvas(vocab, (2, 4), (5, 5)))
    alone = chosen(image_canvas(vocab, (2, 4)), image_canvas(vocab, (5, 5)))
    assert together == [one + two for one, two in zip(*alone, strict=True)] and len(together) == 4


def test_nothing_survives_a_generation(vocab, small_llada):
    cache, results = MaxLogitCache(0.7, 0.1, 4), []
    for _ in range(2):
        canvas = image_canvas(vocab, (3, 3), (2, 4))
        denoise(
            canvas, small_llada, scheduler=Scheduler(), guider=TextGuidance(2.0), blocks=WholeCanvas(7), cache=cache
        )
        results.append(canvas.ids)
    assert torch.equal(*results)


def test_the_cache_does_change_what_is_drawn(vocab, small_llada):
    """Else the sameness of a refreshed cache would say nothing."""
    results = []
    for cache in (NoCache(), MaxLogitCache(0.95, 0, 100)):
        canvas = image_canvas(vocab, (5, 5))
        denoise(canvas, small_llada, scheduler=Scheduler(temperature=0), blocks=WholeCanvas(8), cache=cache)
        results.append(canvas.ids)
    assert not torch.equal(*results)


def test_changed_rows_come_first_then_the_least_sure_masks():
    best = torch.tensor([[5.0, 1.0, 4.0, 3.0, 2.0, 0.0]])
    changed = torch.tensor([[0, 0, 1, 0, 0, 0]]).bool()
    masked = torch.tensor([[1, 1, 0, 1, 1, 0]]).bool()
    for share, rows in ((1 / 6, [2]), (0.5, [2, 1, 4]), (0.51, [2, 1, 4, 3]), (1.0, [2, 1, 4, 3, 0, 5])):
        assert changed_first(best, changed, masked, [6], share).tolist() == [rows]


def test_a_shorter_sequence_repeats_its_first_row():
    best, nothing = torch.arange(12.0).view(2, 6).flip(1), torch.zeros(2, 6, dtype=torch.bool)
    masked = torch.ones(2, 6, dtype=torch.bool)
    masked[1, 3:] = False  # padding
    assert changed_first(best, nothing, masked, [6, 3], 0.5).tolist() == [[5, 4, 3], [2, 1, 2]]


def test_the_published_rule_is_a_quantile_with_ties():
    best = torch.tensor([[3.0, 1.0, 2.0, 1.0, 5.0], [1.0, 2.0, 9.0, 0.0, 0.0]])
    for share, rows in ((0.5, [1, 2, 3]), (0.01, [1, 3])):
        first, second = published(best, None, None, [5, 2], share).tolist()
        assert first == rows and set(second) == {0}  # what lies behind its length does not count


def test_committed_ids_are_recomputed_in_the_next_step(vocab, small_llada):
    canvas, changed = image_canvas(vocab, (4, 4)), []

    def select(best, changed_rows, *rest):
        changed.append(int(changed_rows.sum()))
        return changed_first(best, changed_rows, *rest)

    select.everywhere = False
    cache = MaxLogitCache(0.7, 0, 1000, select)
    passes_of(canvas, small_llada, cache, steps=8, scheduler=Scheduler(quota=even))
    assert changed == [2] * 7  # what the step before committed, and nothing older


def edit_canvas(vocab, grid):
    """An edit: a source picture of `grid` stands in two of three branches."""
    picture = vocab.lay_out(torch.arange(grid[0] * grid[1]).view(grid) % vocab.codebook_size)
    words = torch.arange(8, 12)
    conditions = {"cond": torch.cat([words, picture]), "no_text": torch.cat([words[:1], picture]), "no_image": words}
    answer = torch.cat([torch.tensor([vocab.boa]), vocab.empty_image(*grid), torch.tensor([vocab.eoa])])
    return Canvas([Row(answer, conditions, vocab.codes, grid)], vocab, [(0, 0)])


@pytest.mark.parametrize(("cache", "computed"), [(SourceReuse(4), 4 + 22 + 4), (PromptReuse(4), 22 + 4)])
def test_reuse_computes_the_rest_of_the_longest_branch(vocab, small_llada, cache, computed):
    """22 positions of the picture and its row ends, 4 markers, 4 words."""
    canvas, slots = edit_canvas(vocab, (4, 4)), {"guider": TextImageGuidance()}
    passes = passes_of(canvas, small_llada, cache, steps=6, **slots)
    assert [rows for rows, _ in passes] == [4 + 22 + 22 + 2, *[computed - 2] * 3, 4 + 22 + 22 + 2, computed - 2]
    assert [logits for _, logits in passes] == [16, 13, 10, 7, 4, 2]


def test_reuse_composes_with_the_max_logit_cache(vocab, small_llada):
    cache = MaxLogitCache(0.8, warmup=0, refresh=3, reuse=SourceReuse(6))
    passes = passes_of(edit_canvas(vocab, (4, 4)), small_llada, cache, steps=8, guider=TextImageGuidance())
    assert [rows for rows, _ in passes] == [50, 10, 10, 28, 10, 10, 50, 10]


@pytest.mark.parametrize(("drift", "full"), [(1e9, [0]), (1e-9, [0, 2, 4, 6])])
def test_a_sequence_that_drifts_is_refreshed(vocab, small_llada, drift, full):
    passes = passes_of(image_canvas(vocab, (4, 4)), small_llada, MaxLogitCache(0.8, 0, 100, drift=drift), steps=8)
    assert [step for step, (rows, _) in enumerate(passes) if rows == 30] == full


@pytest.mark.parametrize("interval", [(0.0, 0.3), (0.4, 1.0)])
def test_branches_may_come_and_go(vocab, small_llada, interval):
    """Warm-up keeps nothing, then fewer or more branches are asked; recomputing all rows still is no cache."""
    guider, results = GuidanceInterval(TextGuidance(), *interval), []
    for cache in (NoCache(), MaxLogitCache(ratio=1e-9, warmup=0.5, refresh=100)):
        canvas = image_canvas(vocab, (4, 4), (2, 3))
        slots = {"scheduler": Scheduler(), "blocks": WholeCanvas(10), "guider": guider}
        denoise(canvas, small_llada, cache=cache, **slots)
        results.append(canvas.ids)
    assert torch.equal(*results)


class Deaf(HashDenoiser):
    can_cache = False


@pytest.mark.parametrize("name", [name for name in CACHES if name != "none"])
def test_a_model_that_cannot_is_refused_before_the_first_forward(vocab, name):
    counted = Counted(Deaf(vocab.size))
    with pytest.raises(ValueError, match="computes all positions or none; allowed cache: none"):
        denoise(image_canvas(vocab, (2, 2)), counted, scheduler=Scheduler(), cache=CACHES[name]())
    assert not counted.passes
    assert passes_of(image_canvas(vocab, (2, 2)), Deaf(vocab.size), NoCache(), steps=2)


def layer_of(store, batch=1, groups=2, width=2):
    return store.layer(0, torch.zeros(batch, groups, 1, width), batch, 6)


def test_a_store_keeps_its_memory():
    store = KVStore()
    assert store.empty
    keys, values = layer_of(store)
    assert keys.shape == values.shape == (1, 6, 2, 2) and not store.empty
    keys[0, 4] = 7
    assert layer_of(store)[0] is keys


def test_a_narrowed_store_writes_through_and_a_taken_one_is_put_back():
    store = KVStore()
    layer_of(store, batch=3)
    store.narrow(2).keys[0][:, 1] = 1
    assert store.keys[0].sum((1, 2, 3)).tolist() == [4, 4, 0]
    part = store.take([2, 0])
    part.keys[0] += 1
    assert store.keys[0].sum((1, 2, 3)).tolist() == [4, 4, 0]
    store.put([2, 0], part, 3)
    assert store.keys[0].sum((1, 2, 3)).tolist() == [28, 4, 24]
    new = KVStore()
    new.put([1], part.take([0]), 2)
    assert new.keys[0].sum((1, 2, 3)).tolist() == [0, 24]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ratio": 0.0}, r"ratio must lie in \(0, 1\), got 0"),
        ({"ratio": 1.0}, r"ratio must lie in \(0, 1\), got 1"),
        ({"warmup": 1.5}, r"warmup must lie in \[0, 1\], got 1.5"),
        ({"refresh": 0}, "refresh must be at least 1, got 0"),
        ({"drift": 0.0}, "drift must be more than 0, got 0"),
    ],
)
def test_values_that_cannot_be(options, words):
    with pytest.raises(ValueError, match=words):
        MaxLogitCache(**options)


def test_toys_need_no_cache(vocab):
    results = []
    for cache in (NoCache(), MaxLogitCache(1e-9, 0, 100)):
        canvas = image_canvas(vocab, (3, 4))
        denoise(canvas, HashDenoiser(vocab.size), scheduler=Scheduler(), blocks=WholeCanvas(6), cache=cache)
        results.append(canvas.ids)
    assert torch.equal(*results)
