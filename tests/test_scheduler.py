"""From guided logits to what is written: candidates, confidence, quotas, truncation, and when an answer is done."""

import math

import pytest
import torch

from dimoo.blocks import LeftToRight, WholeCanvas
from dimoo.canvas import Canvas, Row
from dimoo.model import AnswerDenoiser, HashDenoiser
from dimoo.sampling import (
    QUOTAS,
    AnswerEnd,
    GumbelNoise,
    LowPrecisionNoise,
    NeverEarly,
    Scheduler,
    Truncation,
    denoise,
)
from dimoo.sampling.quotas import cosine, even, linear, powers_of_two
from dimoo.sampling.scheduler import suppress

COND = torch.tensor([8, 9])


def make_canvas(vocab, *answers, seed=0):
    rows = [Row(torch.tensor(answer), {"cond": COND}, vocab.everything) for answer in answers]
    return Canvas(rows, vocab, [(seed, k) for k in range(len(rows))])


def blank(vocab, length):
    return [vocab.boa, *[vocab.mask] * length, vocab.eoa]


def target_of(*ids):
    return {len(COND) + 1 + k: token for k, token in enumerate(ids)}


def watch(canvas, denoiser, **slots):
    """Masks left before the first and after every step, and the updates."""
    left, updates = [canvas.masked.sum(1).tolist()], []

    def on_step(step):
        left.append(canvas.masked.sum(1).tolist())
        updates.append(step.update)

    denoise(canvas, denoiser, **slots, on_step=on_step)
    return left, updates


def test_a_known_answer_is_found(vocab):
    words = [10, 20, 12, 23, 9, 15]
    for blocks in (WholeCanvas(3), LeftToRight(6, 2)):
        canvas = make_canvas(vocab, blank(vocab, 6))
        denoise(
            canvas, AnswerDenoiser(target_of(*words), vocab.size), scheduler=Scheduler(temperature=0), blocks=blocks
        )
        assert canvas.row(0).tolist() == [vocab.boa, *words, vocab.eoa]


def test_the_most_confident_come_first(vocab):
    words, canvas = [10, 20, 12, 23], make_canvas(vocab, blank(vocab, 4))
    certainty = torch.tensor([0.5, 0.5, 0.5, 0.6, 0.9, 0.7, 0.8])
    denoiser, order = AnswerDenoiser(target_of(*words), vocab.size, certainty), []
    scheduler = Scheduler(quota=even, temperature=0)
    denoise(canvas, denoiser, scheduler=scheduler, blocks=WholeCanvas(4),
            on_step=lambda step: order.append(canvas.masked[0].nonzero().flatten().tolist()))  # fmt: skip
    assert order == [[1, 3, 4], [1, 3], [1], []]  # 0.9, 0.8, 0.7, 0.6


def test_confidence_is_the_probability_of_what_was_chosen(vocab):
    words, canvas = [10, 20], make_canvas(vocab, blank(vocab, 2))
    certainty = torch.tensor([0.5, 0.5, 0.5, 0.6, 0.9])
    _, updates = watch(canvas, AnswerDenoiser(target_of(*words), vocab.size, certainty),
                       scheduler=Scheduler(temperature=0), blocks=WholeCanvas(1))  # fmt: skip
    without_mask = 1 - (1 - certainty[3:]) / (vocab.size - 1)  # the mask's share goes to all others
    torch.testing.assert_close(updates[0].confidence[0], certainty[3:] / without_mask)


@pytest.mark.parametrize("quota", QUOTAS.values(), ids=QUOTAS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_step_commits_its_quota_exactly(vocab, quota, temperature):
    canvas = make_canvas(vocab, blank(vocab, 13), blank(vocab, 5))
    scheduler = Scheduler(quota=quota, temperature=temperature)
    left, updates = watch(canvas, HashDenoiser(vocab.size), scheduler=scheduler, blocks=WholeCanvas(8))
    for row, masks in enumerate((13, 5)):
        counts = quota(masks, 8)
        steps = [step for step in range(8) if quota(13, 8)[step] or quota(5, 8)[step]]  # idle ones are left out
        assert [int(update.write[row].sum()) for update in updates] == [counts[step] for step in steps]
        expected = [masks - sum(counts[: step + 1]) for step in steps]
        assert [each[row] for each in left] == [masks, *expected]


def test_equal_confidences_do_not_change_the_number(vocab):
    canvas = make_canvas(vocab, blank(vocab, 12))
    nothing_known = AnswerDenoiser({0: -1}, vocab.size)  # all logits are equal
    left, _ = watch(canvas, nothing_known, scheduler=Scheduler(quota=even, temperature=0), blocks=WholeCanvas(5))
    assert [masks for [masks] in left] == [12, 9, 6, 4, 2, 0]


def test_the_published_cosine():
    assert cosine(4096, 64)[:3] == [2, 3, 7]
    for masks, steps in ((64, 8), (4096, 64), (30, 8)):
        left = [masks]
        for count in cosine(masks, steps):
            left.append(left[-1] - count)
        for step in range(steps - 1):
            assert left[step + 1] == max(
                1, min(left[step] - 1, math.floor(masks * math.cos(math.pi / 2 * (step + 1) / steps)))
            )
    assert cosine(3, 8) == [1, 1, 0, 0, 0, 0, 0, 1]


def test_the_other_quotas():
    assert linear(10, 4) == [3, 2, 3, 2]
    assert even(10, 4) == [3, 3, 2, 2]
    assert powers_of_two(20, 4) == [1, 2, 4, 13]
    assert powers_of_two(5, 6) == [1, 2, 2, 0, 0, 0]


class SureOf(HashDenoiser):
    """Would answer with the same token everywhere."""

    def __init__(self, vocab, token):
        super().__init__(vocab.size)
        self.token = token

    def score(self, ids, key_mask, rows, tokens):
        return super().score(ids, key_mask, rows, tokens) + 100.0 * (tokens == self.token)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_mask_is_never_committed(vocab, temperature):
    canvas = make_canvas(vocab, blank(vocab, 9))
    denoise(canvas, SureOf(vocab, vocab.mask), scheduler=Scheduler(temperature=temperature), blocks=WholeCanvas(4))
    assert not (canvas.ids == vocab.mask).any()
    assert (SureOf(vocab, 12)(canvas.ids).logits.argmax(-1) == 12).all()  # and else it would have been


def test_suppression_touches_the_mask_only(vocab):
    canvas, logits = make_canvas(vocab, blank(vocab, 2)), torch.randn(1, 2, vocab.size)
    cut = suppress(logits, canvas)
    assert (cut[..., vocab.mask] == -torch.inf).all()
    keep = torch.arange(vocab.size) != vocab.mask
    assert torch.equal(cut[..., keep], logits[..., keep])
    codes = Canvas([Row(torch.tensor(blank(vocab, 2)), {}, vocab.codes)], vocab, [(0, 0)])
    assert torch.equal(suppress(logits[..., :16], codes), logits[..., :16])


def test_ids_are_those_of_the_slice(vocab):
    canvas = Canvas([Row(torch.tensor(blank(vocab, 8)), {"cond": COND}, vocab.codes)], vocab, [(0, 0)])
    denoise(canvas, HashDenoiser(vocab.size), scheduler=Scheduler(), blocks=WholeCanvas(3))
    filled = canvas.ids[canvas.editable]
    assert ((filled >= vocab.codes.start) & (filled < vocab.codes.stop)).all()
    assert len(filled.unique()) > 2


def test_temperature_zero_is_the_best_token_and_seeds_do_not_matter(vocab):
    results = []
    for seed in (0, 1):
        canvas = make_canvas(vocab, blank(vocab, 9), seed=seed)
        denoise(canvas, HashDenoiser(vocab.size), scheduler=Scheduler(temperature=0), blocks=WholeCanvas(4))
        results.append(canvas.ids)
    assert torch.equal(*results)


def step_once(vocab, logits, seed=0, step=0, steps=2, **options):
    """One decision of a scheduler about a blank canvas."""
    canvas = make_canvas(vocab, blank(vocab, logits.shape[1]), seed=seed)
    scheduler = Scheduler(**options)
    timetable = scheduler.timetable(canvas, next(WholeCanvas(steps).windows(canvas)))
    rows = torch.arange(1, logits.shape[1] + 1)[None]
    return scheduler.step(logits, canvas, rows, torch.ones_like(rows, dtype=torch.bool), timetable, step, step)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_from_the_tempered_distribution(vocab, temperature):
    logits = torch.full((1, 4000, vocab.size), -torch.inf)
    logits[..., 10:14] = torch.tensor([2.0, 1.0, 0.0, -1.0])
    ids = step_once(vocab, logits, temperature=temperature).ids
    drawn = torch.bincount(ids.flatten(), minlength=vocab.size)[10:14] / 4000
    assert (drawn - (logits[0, 0, 10:14] / temperature).softmax(-1)).abs().max() < 0.03


def test_confidence_comes_from_the_untruncated_distribution(vocab):
    logits = torch.zeros(1, 3, vocab.size)
    logits[..., 10] = 1.0
    update = step_once(vocab, logits, temperature=1.0, truncation=Truncation(top_k=1))
    assert (update.ids == 10).all()
    expected = math.e / (math.e + vocab.size - 2)  # all but the mask
    torch.testing.assert_close(update.confidence, torch.full((1, 3), expected))


def test_positions_that_are_not_open_are_not_written(vocab):
    canvas, scheduler = make_canvas(vocab, blank(vocab, 4)), Scheduler(quota=even, temperature=0)
    timetable = scheduler.timetable(canvas, next(WholeCanvas(1).windows(canvas)))  # all four at once
    valid = torch.tensor([[True, False, True, False]])  # two were filled by somebody else meanwhile
    logits = torch.randn(1, 4, vocab.size, generator=torch.Generator().manual_seed(0))
    update = scheduler.step(logits, canvas, torch.tensor([[1, 2, 3, 4]]), valid, timetable, 0, 0)
    assert torch.equal(update.write, valid)


def test_low_precision_goes_all_the_way(vocab):
    logits = torch.randn(1, 30, vocab.size, generator=torch.Generator().manual_seed(0))
    coarse, exact = (step_once(vocab, logits, noise=noise).confidence for noise in (LowPrecisionNoise(), GumbelNoise()))
    assert torch.equal(coarse.float(), coarse.bfloat16().float())
    assert not torch.equal(exact, exact.bfloat16().float())


def order_of(vocab, seed, step=0, **options):
    """Which of 40 positions of rising confidence are committed."""
    logits = torch.zeros(1, 40, vocab.size)
    logits[..., 10] = torch.linspace(3, 5, 40)
    return step_once(vocab, logits, seed=seed, step=step, quota=even, **options).write[0].nonzero().flatten().tolist()


def test_noise_on_the_order_has_its_own_temperature_and_fades(vocab):
    best = list(range(20, 40))
    top = {"temperature": 1.0, "truncation": Truncation(top_k=1)}
    assert order_of(vocab, 0, **top, rank_temperature=0.0) == best
    assert order_of(vocab, 0, **top) != best
    assert order_of(vocab, 0, **top) == order_of(vocab, 0, **top, rank_temperature=1.0)
    assert order_of(vocab, 0, **top) != order_of(vocab, 1, **top)
    assert order_of(vocab, 0, temperature=0.0, rank_temperature=1.0) == order_of(vocab, 0, **top)
    assert order_of(vocab, 0, step=1, **top, anneal=lambda progress: 1 - 2 * progress) == best
    assert order_of(vocab, 0, step=1, **top, anneal=lambda progress: 1.0) != best


def allowed(logits, **options):
    return Truncation(**options)(logits).isfinite()


@pytest.fixture
def logits():
    return torch.randn(3, 4, 30, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("k", [1, 3, 29, 30, 31, 1000])
def test_top_k_keeps_the_k_best(logits, k):
    kept = allowed(logits, top_k=k)
    assert (kept.sum(-1) == min(k, 30)).all()
    ranks = logits.argsort(-1, descending=True).argsort(-1)
    assert torch.equal(kept, ranks < k)


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.9, 0.999, 1.0])
def test_top_p_keeps_the_smallest_set_of_that_probability(logits, p):
    kept = allowed(logits, top_p=p)
    for share, keep in zip(logits.softmax(-1).flatten(0, 1), kept.flatten(0, 1), strict=True):
        ordered = sorted(share.tolist(), reverse=True)
        count = next((n for n in range(1, 31) if sum(ordered[:n]) >= p - 1e-7), 30)
        assert int(keep.sum()) == (30 if p == 1 else count)
        assert share[keep].min() >= share[~keep].max() if (~keep).any() else p > 0.99


@pytest.mark.parametrize("p", [1e-4, 0.1, 0.5, 1.0])
def test_min_p_keeps_what_reaches_a_share_of_the_best(logits, p):
    share = logits.softmax(-1)
    assert torch.equal(allowed(logits, min_p=p), share >= p * share.amax(-1, keepdim=True) * (1 - 1e-6))


def test_truncations_add_up_and_leave_logits_as_they_are(logits):
    both = Truncation(top_k=5, min_p=0.2)(logits)
    assert torch.equal(both.isfinite(), allowed(logits, top_k=5) & allowed(logits, min_p=0.2))
    assert torch.equal(both[both.isfinite()], logits[both.isfinite()])
    assert torch.equal(Truncation()(logits), logits)


@pytest.mark.parametrize("options", [{"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.9}])
def test_only_what_is_left_is_drawn(vocab, options):
    logits = torch.zeros(1, 2000, vocab.size)
    logits[..., 10], logits[..., 11] = 5.0, 4.95
    ids = step_once(vocab, logits, temperature=5.0, truncation=Truncation(**options)).ids
    assert set(ids.unique().tolist()) == {10, 11}
    assert len(step_once(vocab, logits, temperature=5.0).ids.unique()) > 30


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Truncation(top_k=0), "top_k must be at least 1, got 0"),
        (lambda: Truncation(top_p=0), r"top_p must lie in \(0, 1\], got 0"),
        (lambda: Truncation(min_p=1.5), r"min_p must lie in \(0, 1\], got 1.5"),
        (lambda: Scheduler(temperature=-1), "temperature must be 0 or more, got -1"),
        (lambda: Scheduler(rank_temperature=float("nan")), "rank_temperature must be 0 or more, got nan"),
        (lambda: WholeCanvas(0), "steps must be at least 1, got 0"),
        (lambda: LeftToRight(0), "steps must be at least 1, got 0"),
        (lambda: LeftToRight(4, 0), "block_length must be at least 1, got 0"),
    ],
)
def test_values_that_cannot_be(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_blocks_are_finished_from_left_to_right(vocab):
    canvas = make_canvas(vocab, [vocab.boa, 1, 1, 9, 1, 1, 1, vocab.eoa])
    states = []
    denoise(canvas, HashDenoiser(vocab.size), scheduler=Scheduler(quota=even), blocks=LeftToRight(6, 2),
            on_step=lambda step: states.append(canvas.masked[0].nonzero().flatten().tolist()))  # fmt: skip
    assert len(states) == 5
    assert states[1] == [4, 5, 6] and states[3] == [6] and states[4] == []
    assert states[0] in ([1, 4, 5, 6], [2, 4, 5, 6])


def test_an_answer_is_done_at_its_end_but_not_before_its_beginning(vocab):
    e, m, p = vocab.eoa, vocab.mask, vocab.pad
    blank_row = [vocab.boa, *[m] * 5, e]
    states = {
        (9, 9, e, m, m): True,
        (9, 9, p, m, m): True,
        (e, m, m, m, m): True,
        (9, m, e, m, m): False,
        (m, 9, 9, 9, e): False,
        (9, 9, 9, m, m): False,
        (9, 9, 9, 9, 9): False,  # full, without an end of its own: the fixed closing token is none
    }
    canvas = make_canvas(vocab, *[blank_row] * len(states))
    for row, ids in enumerate(states):
        canvas.ids[row, 1:6] = torch.tensor(ids)
    assert not AnswerEnd()(canvas)
    assert canvas.done.tolist() == list(states.values())
    assert not NeverEarly()(make_canvas(vocab, [6, 9, 7]))
    full = make_canvas(vocab, blank_row, blank_row)
    full.ids[0, 1:6], full.ids[1, 1:6] = torch.tensor([9, e, m, m, m]), torch.tensor([9] * 5)
    assert AnswerEnd()(full)


def test_a_finished_answer_costs_nothing_more(vocab):
    canvas = make_canvas(vocab, blank(vocab, 30))
    denoiser = AnswerDenoiser(target_of(9, 10, vocab.eoa), vocab.size)
    slots = {"scheduler": Scheduler(quota=even, temperature=0), "blocks": LeftToRight(30, 5)}
    assert denoise(canvas, denoiser, **slots, stop=AnswerEnd()) == 3
    assert canvas.row(0).tolist()[:4] == [vocab.boa, 9, 10, vocab.eoa]
    assert denoise(make_canvas(vocab, blank(vocab, 30)), denoiser, **slots, stop=NeverEarly()) == 30


def test_a_canvas_without_masks_costs_nothing(vocab):
    for blocks in (WholeCanvas(4), LeftToRight(4, 2)):
        canvas = make_canvas(vocab, [6, 9, 9, 7], [6, 9, 7])
        assert denoise(canvas, None, scheduler=Scheduler(), blocks=blocks) == 0
