"""Prefix, dual and vicinity caches compute the rows they say, and smoothing shows what was leaned to."""

import pytest
import torch

from dimoo.blocks import LeftToRight
from dimoo.cache import DualCache, NoCache, PrefixCache, VicinityCache
from dimoo.canvas import Canvas, Row
from dimoo.guidance import GuidanceInterval, TextGuidance
from dimoo.sampling import Scheduler, Smoothing, denoise
from dimoo.sampling.quotas import even

PROMPT, LENGTH = 6, 12


class Watched:
    """Keeps which rows of the first sequence each pass computes (None: all) and how far embeddings were moved."""

    def __init__(self, denoiser):
        self.denoiser, self.passes, self.soft = denoiser, [], []
        self.embed = denoiser.embed

    def __call__(self, input_ids, *, rows=None, soft=None, **options):
        self.passes.append(None if rows is None else sorted(set(rows[0].tolist())))
        self.soft.append(None if soft is None else soft)
        given = {} if soft is None else {"soft": soft}
        return self.denoiser(input_ids, rows=rows, **given, **options)


def canvas_of(vocab, *lengths):
    rows = []
    for length in lengths or (LENGTH,):
        answer = torch.tensor([vocab.boa, *[vocab.mask] * length, vocab.eoa])
        conditions = {"cond": torch.arange(8, 8 + PROMPT), "uncond": torch.tensor([5])}
        rows.append(Row(answer, conditions, vocab.everything))
    return Canvas(rows, vocab, [(0, k) for k in range(len(rows))])


def passes(vocab, denoiser, cache, blocks=LeftToRight(6, 6), **slots):  # noqa: B008
    watched, canvas = Watched(denoiser), canvas_of(vocab)
    denoise(canvas, watched, scheduler=Scheduler(quota=even, temperature=0), blocks=blocks, cache=cache, **slots)
    return watched, canvas


FIRST = PROMPT + 1  # the position of the first mask
END = PROMPT + LENGTH + 2


@pytest.mark.parametrize(
    ("cache", "stretches"),
    [
        (PrefixCache(), [(FIRST, END), (FIRST + 6, END)]),
        (DualCache(), [(FIRST, FIRST + 6), (FIRST + 6, FIRST + 12)]),
        (VicinityCache(before=2, behind=3, warmup=0), [(FIRST - 2, FIRST + 9), (FIRST + 4, END)]),
    ],
)
def test_rows_that_are_recomputed(vocab, small_llada, cache, stretches):
    watched, canvas = passes(vocab, small_llada, cache)
    assert watched.passes == [rows for stretch in stretches for rows in (None, *[list(range(*stretch))] * 2)]
    assert not canvas.masked.any()


def test_refreshing_in_between_and_warming_up(vocab, small_llada):
    long = LeftToRight(12, 6)
    watched, _ = passes(vocab, small_llada, DualCache(refresh=2), long)
    assert [rows is None for rows in watched.passes] == [True, False] * 6
    watched, _ = passes(vocab, small_llada, VicinityCache(warmup=4), long)
    assert [rows is None for rows in watched.passes] == [True] * 5 + [False] + [True] + [False] * 5


def test_rows_of_a_batch_may_stand_at_different_places(vocab, small_llada):
    slots = {"scheduler": Scheduler(quota=even, temperature=0), "blocks": LeftToRight(6, 4)}
    for cache in (PrefixCache(), DualCache(), VicinityCache(2, 2, 1)):
        canvas, alone = canvas_of(vocab, 12, 7), [canvas_of(vocab, 12), canvas_of(vocab, 7)]
        for each in (canvas, *alone):
            denoise(each, small_llada, **slots, cache=cache)
        assert [canvas.row(k).tolist() for k in (0, 1)] == [each.row(0).tolist() for each in alone]


def test_a_branch_that_comes_later_gets_a_full_pass(vocab, small_llada):
    guider = GuidanceInterval(TextGuidance(1.0), 0.5, 1.0)
    watched, canvas = passes(vocab, small_llada, DualCache(), LeftToRight(8, 12), guider=guider)
    assert [rows is None for rows in watched.passes] == [True] + [False] * 3 + [True] + [False] * 3
    assert not canvas.masked.any()


def test_an_old_cache_changes_what_is_written(vocab, small_llada):
    results = [passes(vocab, small_llada, cache, LeftToRight(12, 12))[1].row(0) for cache in (NoCache(), DualCache())]
    assert not torch.equal(*results)


def test_smoothing_moves_masks_only_and_starts_afresh_in_each_window(vocab, small_llada):
    watched, canvas = passes(vocab, small_llada, Smoothing(DualCache()))
    assert [soft is None for soft in watched.soft] == [True, False, False] * 2
    assert not canvas.masked.any()
    moved = watched.soft[1][0].abs().sum(-1) > 0
    assert int(moved.sum()) == 4 and not moved[:FIRST].any() and not moved[FIRST + 6 :].any()  # two of six are written


def test_without_weight_smoothing_is_nothing(vocab, small_llada):
    results = [passes(vocab, small_llada, cache)[1].row(0) for cache in (NoCache(), Smoothing(start=0, rise=0, most=0))]
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PrefixCache(refresh=0), "refresh must be at least 1, got 0"),
        (lambda: VicinityCache(before=-1), "vicinity before must be 0 or more, got -1"),
        (lambda: Smoothing(start=0.5, most=0.3), "smoothing needs 0 <= start <= most"),
    ],
)
def test_values_that_cannot_be(make, words):
    with pytest.raises(ValueError, match=words):
        make()
