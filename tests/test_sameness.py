"""What must not matter does not matter: batching, caching, order of branches, watching. Driven by the tables."""

import pytest
import torch

from dimoo.blocks import LeftToRight, WholeCanvas
from dimoo.cache import CACHES, MaxLogitCache, NoCache
from dimoo.canvas import Canvas, Row
from dimoo.guidance import GUIDERS, NestedGuidance, active
from dimoo.model import MODELS, HashDenoiser
from dimoo.sampling import AnswerEnd, NeverEarly, Scheduler, denoise
from dimoo.sampling.loop import WINDOW
from dimoo.sampling.quotas import even

GUIDER_OPTIONS = {"interval": {"guider": NestedGuidance(), "start": 0.2, "stop": 0.7}}
CACHE_OPTIONS = {"none": {}}  # what makes a cache refresh at every step; {"refresh": 1} where nothing is said
SEEDS = [(0, 0), (0, 1), (7, 0)]


def make_guider(name):
    return GUIDERS[name](**GUIDER_OPTIONS.get(name, {}))


@pytest.fixture(params=GUIDERS)
def guider(request):
    return make_guider(request.param)


@pytest.fixture(params=CACHES)
def cache_name(request):
    return request.param


BUSY = {"max-logit": {"ratio": 0.6, "warmup": 0.2, "refresh": 3, "drift": 0.5}}  # what makes a cache do what it can


@pytest.fixture
def cache(cache_name):
    return CACHES[cache_name](**BUSY.get(cache_name, {"refresh": 3} if cache_name != "none" else {}))


@pytest.fixture(params=MODELS)
def denoiser(request, small_llada, vocab):
    return {"llada": small_llada, "toy": HashDenoiser(vocab.size)}[request.param]


def conditions(seed):
    """Prompts of unlike lengths; every branch a guider may ask for."""
    generator = torch.Generator().manual_seed(seed)
    lengths = {"cond": 5 + seed, "no_text": 4, "no_image": 3 + seed, "uncond": 2}
    words = {name: torch.randint(8, 24, (length,), generator=generator) for name, length in lengths.items()}
    picture = torch.tensor([3, *torch.randint(24, 40, (3,), generator=generator).tolist(), 2, 4])  # boi ... eoi
    return {name: torch.cat([ids, picture]) if name in ("cond", "no_text") else ids for name, ids in words.items()}


def picture_row(vocab, seed, grid, known=0):
    """An image row of a grid in which the first `known` codes are there already."""
    codes = torch.full(grid, vocab.mask - vocab.image_offset)
    codes.view(-1)[:known] = torch.arange(known) % vocab.codebook_size
    answer = [torch.tensor([vocab.boa]), vocab.lay_out(codes), torch.tensor([vocab.eoa])]
    return Row(torch.cat(answer), conditions(seed), vocab.codes, grid)


def text_row(vocab, seed, length, known=()):
    """A text row of `length` positions; `known` ones hold a word already."""
    answer = torch.full((length + 2,), vocab.mask)
    answer[0], answer[-1] = vocab.boa, vocab.eoa
    for position in known:
        answer[position] = 8 + position
    return Row(answer, conditions(seed), vocab.everything)


ROWS = {
    "image": lambda v: [picture_row(v, 0, (3, 4)), picture_row(v, 1, (5, 2), 2), picture_row(v, 2, (2, 6))],
    "text": lambda v: [text_row(v, 0, 12), text_row(v, 1, 16, (3, 4)), text_row(v, 2, 15)],
}
SLOTS = {
    "image": {"scheduler": Scheduler(), "blocks": WholeCanvas(6), "stop": NeverEarly()},
    "text": {
        "scheduler": Scheduler(quota=even, temperature=0.7),
        "blocks": LeftToRight(8, 8),
        "stop": AnswerEnd(),
    },
}


@pytest.fixture(params=ROWS)
def kind(request):
    return request.param


def fill(rows, seeds, vocab, denoiser, kind, sure=False, **slots):
    """Fill a batch: the ids of every row in the end, and the canvas (and, if `sure`, confidences) of every step."""
    canvas, states = Canvas(rows, vocab, seeds), []

    def keep(step):
        states.append(canvas.ids.clone())
        states.extend([step.update.confidence.clone()] if sure else [])

    denoise(canvas, denoiser, **SLOTS[kind] | slots, on_step=keep)
    return [canvas.row(k) for k in range(len(rows))], states


def same(ours, others):
    return len(ours) == len(others) and all(map(torch.equal, ours, others))


def each_alone(rows, seeds, *rest, **slots):
    return [fill([row], [seed], *rest, **slots)[0][0] for row, seed in zip(rows, seeds, strict=True)]


def test_a_batch_equals_its_rows_alone(vocab, denoiser, kind, guider, cache):
    rows, slots = ROWS[kind](vocab), {"guider": guider, "cache": cache}
    together, _ = fill(rows, SEEDS, vocab, denoiser, kind, **slots)
    assert same(together, each_alone(rows, SEEDS, vocab, denoiser, kind, **slots))
    assert len({tuple(ids.tolist()) for ids in together}) == len(rows)


UNEQUAL = {
    "image": lambda v: [picture_row(v, 40, (2, 2), 1), picture_row(v, 1, (5, 4)), picture_row(v, 2, (1, 1))],
    "text": lambda v: [text_row(v, 40, 3), text_row(v, 1, 30), text_row(v, 2, 17, (2,))],
}


# an interval is counted in the steps of the longest row, so unlike numbers of blocks matter to it
PAIRS = [(kind, name) for kind in UNEQUAL for name in GUIDERS if (kind, name) != ("text", "interval")]


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_rows_with_fewer_masks_than_steps_or_fewer_blocks_too(vocab, denoiser, kind, name):
    rows, slots = UNEQUAL[kind](vocab), {"guider": make_guider(name)}
    together, _ = fill(rows, SEEDS, vocab, denoiser, kind, **slots)
    assert same(together, each_alone(rows, SEEDS, vocab, denoiser, kind, **slots))


def test_such_rows_with_a_cache_too(vocab, denoiser, kind, cache):
    """A row alone skips steps in which it commits nothing; in a batch its memory must not notice them either."""
    rows, slots = UNEQUAL[kind](vocab), {"guider": make_guider("nested"), "cache": cache}
    together, _ = fill(rows, SEEDS, vocab, denoiser, kind, **slots)
    assert same(together, each_alone(rows, SEEDS, vocab, denoiser, kind, **slots))


def test_a_cache_that_refreshes_every_step_is_no_cache(vocab, denoiser, kind, guider, cache_name):
    every = CACHES[cache_name](**CACHE_OPTIONS.get(cache_name, {"refresh": 1}))
    rows = ROWS[kind](vocab)
    plain = fill(rows, SEEDS, vocab, denoiser, kind, guider=guider, sure=True)
    assert same(plain[1], fill(rows, SEEDS, vocab, denoiser, kind, guider=guider, cache=every, sure=True)[1])


def test_a_cache_that_recomputes_every_row_is_no_cache(vocab, denoiser, kind, guider):
    rows = ROWS[kind](vocab)
    all_rows = MaxLogitCache(ratio=1e-9, warmup=0, refresh=100)
    plain, cached = (fill(rows, SEEDS, vocab, denoiser, kind, guider=guider, cache=c) for c in (NoCache(), all_rows))
    assert same(plain[1], cached[1])


def by_hand(row, seed, vocab, denoiser, kind, guider):
    """The states of one row by the plainest way: a full pass for one branch after the other, added up."""
    canvas, slots, states = Canvas([row], vocab, [seed]), SLOTS[kind], []
    for number, window in enumerate(slots["blocks"].windows(canvas)):
        timetable = slots["scheduler"].timetable(canvas, window)
        for step in range(timetable.steps):
            open_rows = (canvas.masked & window.open).nonzero()[:, 1]
            if not timetable.commits[0][step]:
                continue
            guided = 0
            for branch, weight in zip(guider.branches, guider.weights(step / timetable.steps), strict=True):
                before = row.conditions[branch]
                logits = denoiser(torch.cat([before, canvas.row(0)])[None]).logits[0]
                guided = guided + weight * logits[len(before) + open_rows][:, row.columns].float()
            valid = torch.ones(1, len(open_rows), dtype=torch.bool)
            given = (canvas, open_rows[None], valid, timetable, step, number * WINDOW + step)
            canvas.apply(slots["scheduler"].step(guided[None], *given))
            states.append(canvas.ids.clone())
            if slots["stop"](canvas):
                return states
    return states


@torch.inference_mode()
def test_branches_in_one_batch_equal_a_loop_over_them(vocab, denoiser, kind, guider):
    for row, seed in zip(ROWS[kind](vocab), SEEDS, strict=True):
        states = fill([row], [seed], vocab, denoiser, kind, guider=guider)[1]
        assert same(states, by_hand(row, seed, vocab, denoiser, kind, guider))


def test_being_watched_changes_nothing(vocab, denoiser, kind, cache):
    rows, ids = ROWS[kind](vocab), []
    fill_slots = SLOTS[kind] | {"cache": cache}
    for watch in (None, lambda step: None, lambda step: step.canvas.ids.sum().item() < 0):
        canvas = Canvas(rows, vocab, SEEDS)
        denoise(canvas, denoiser, **fill_slots, on_step=watch)
        ids.append(canvas.ids)
    assert torch.equal(ids[0], ids[1]) and torch.equal(ids[0], ids[2])


def test_the_same_seed_gives_the_same_and_another_another(vocab, denoiser, kind, cache):
    row = ROWS[kind](vocab)[0]
    seeds = [(0, 0), (0, 0), (0, 1), (1, 0), (2**62, 0), (-1, 0)]
    first, again, *others = fill([row] * 6, seeds, vocab, denoiser, kind, cache=cache)[0]
    assert torch.equal(first, again)
    assert len({tuple(ids.tolist()) for ids in (first, *others)}) == 5


def test_a_stopped_generation_stops_at_once(vocab, denoiser, kind, guider):
    canvas, seen = Canvas(ROWS[kind](vocab), vocab, SEEDS), []
    forwards = denoise(
        canvas, denoiser, guider=guider, **SLOTS[kind], on_step=lambda s: seen.append(s.tick) or s.tick == 1
    )
    assert seen == [0, 1]
    assert bool(canvas.masked.any())
    steps = {"image": 6, "text": 4}[kind]  # of the first window
    assert forwards == sum(active(guider.weights(step / steps)) for step in (0, 1))
