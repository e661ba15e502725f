"""Text decoding, driven by the tables: whatever is plugged in, nothing fixed changes, every mask is filled, and a
row is the same alone, in a batch, and when the host looks less often."""

from itertools import pairwise

import pytest
import torch

from dimoo.blocks import BLOCKS, LeftToRight, WholeCanvas
from dimoo.cache import CACHES
from dimoo.canvas import Canvas, Row
from dimoo.model import AnswerDenoiser, HashDenoiser
from dimoo.sampling import (
    EDITINGS,
    PROCESSORS,
    REJECTIONS,
    REMASKINGS,
    RULES,
    SMOOTHINGS,
    AnswerEnd,
    EarlyRejection,
    Scheduler,
    TokenEditing,
    denoise,
)
from dimoo.sampling.quotas import even, powers_of_two
from dimoo.sampling.remasking import Written
from dimoo.sampling.rules import Candidates, Hierarchical, Quota, Threshold, ThresholdOrQuota

SEEDS = [(0, 0), (0, 1), (7, 0)]
HOT = {"quota": even, "temperature": 0.7}


def options(part, name):
    """Settings under which a part works: what does not follow a schedule needs a rule of its own kind."""
    if part == "remask":
        scheduled = REMASKINGS[name]().scheduled
        return {"remask": REMASKINGS[name](), "rule": Quota() if scheduled else Hierarchical(0.5, 0.1)}
    return {
        "rule": lambda: {"rule": RULES[name]()},
        "processors": lambda: {"processors": [PROCESSORS[name]()], "rule": Threshold(0.3)},
        "reject": lambda: {"reject": REJECTIONS[name]()},
        "edit": lambda: {"edit": EDITINGS[name](0.2, 3)},
    }[part]()


TABLES = {"rule": RULES, "processors": PROCESSORS, "reject": REJECTIONS, "remask": REMASKINGS, "edit": EDITINGS}
PARTS = [(part, name) for part, table in TABLES.items() for name in table]
MIXED = {"edit": TokenEditing(0.2, 3), "remask": REMASKINGS["low-confidence"](0.2), "rule": Hierarchical(0.5, 0.1)}
WIDE = {"edit": TokenEditing(0.2, 3, "answer"), "rule": Threshold(0.3)}
SCHEDULERS = {f"{part}-{name}": options(part, name) for part, name in PARTS}
SCHEDULERS |= {"edit-and-remask": MIXED, "edit-answer": WIDE, "edit-answer-remask": MIXED | {"edit": WIDE["edit"]}}
SLOTS = {name: {"scheduler": Scheduler(**HOT | given)} for name, given in SCHEDULERS.items()}
SLOTS |= {f"cache-{name}": {"cache": cache()} for name, cache in CACHES.items()}
SLOTS |= {f"smoothing-{name}": {"cache": made()} for name, made in SMOOTHINGS.items()}
SLOTS |= {f"blocks-{name}": {"blocks": blocks(steps=6)} for name, blocks in BLOCKS.items()}
CHANGING = ("remask", "edit")
"""Parts that may touch what is written."""


def rows_of(vocab):
    """Three answers of unlike lengths after unlike prompts, the second with words that stand there already."""
    rows = []
    for index, length in enumerate((7, 12, 9)):
        answer = torch.full((length + 2,), vocab.mask)
        answer[0], answer[-1] = vocab.boa, vocab.eoa
        if index == 1:
            answer[[4, 5]] = torch.tensor([9, 10])
        rows.append(Row(answer, {"cond": torch.arange(8, 12 + index)}, vocab.everything))
    return rows


def fill(rows, seeds, vocab, denoiser, scheduler=None, blocks=None, **slots):
    """(ids of every row in the end, canvases before the first and after every step)."""
    canvas = Canvas(rows, vocab, seeds)
    states = [canvas.ids.clone()]
    scheduler, blocks = scheduler or Scheduler(**HOT), blocks or LeftToRight(8, 5)
    given = {"scheduler": scheduler, "blocks": blocks, "stop": AnswerEnd()} | slots
    denoise(canvas, denoiser, **given, on_step=lambda step: states.append(canvas.ids.clone()))
    return [canvas.row(k) for k in range(len(rows))], states


@pytest.mark.parametrize("name", SLOTS)
def test_a_row_is_the_same_alone_in_a_batch_and_unwatched(vocab, small_llada, name):
    rows, slots = rows_of(vocab), SLOTS[name]
    together, states = fill(rows, SEEDS, vocab, small_llada, **slots)
    for row, seed, ids in zip(rows, SEEDS, together, strict=True):
        assert torch.equal(fill([row], [seed], vocab, small_llada, **slots)[0][0], ids)
    rarely = Scheduler(**vars(slots.get("scheduler", Scheduler(**HOT))) | {"unroll": 3})
    assert all(map(torch.equal, fill(rows, SEEDS, vocab, small_llada, **slots | {"scheduler": rarely})[0], together))
    fixed = states[0] != vocab.mask
    for before, after in pairwise(states):
        assert torch.equal(before[fixed], after[fixed])
        written = before != vocab.mask
        assert name.startswith(CHANGING) or torch.equal(before[written], after[written])


@pytest.mark.parametrize("name", SLOTS)
def test_every_mask_is_filled(vocab, name):
    denoiser = HashDenoiser(vocab.size)
    _, states = fill(rows_of(vocab), SEEDS, vocab, denoiser, **SLOTS[name] | {"stop": lambda canvas: False})
    assert not ((states[-1] == vocab.mask) & (states[0] == vocab.mask)).any()
    left = [(state == vocab.mask).sum(1) for state in states]
    assert all((before >= after).all() for before, after in pairwise(left))  # what goes back is paid for


@pytest.mark.parametrize("name", [name for name in REMASKINGS if REMASKINGS[name]().scheduled])
def test_scheduled_remasking_keeps_the_schedule(vocab, name):
    seen = []
    canvas = Canvas(rows_of(vocab)[:1], vocab, SEEDS[:1])
    remask = REMASKINGS[name](eta=0.9)
    scheduler, plan = Scheduler(quota=even, remask=remask), remask.quota(even)(7, 14)
    denoise(canvas, HashDenoiser(vocab.size), scheduler=scheduler, blocks=WholeCanvas(14),
            on_step=lambda step: seen.append((int(canvas.masked.sum()), int(step.update.back.sum()))))  # fmt: skip
    assert [left for left, _ in seen] == [7 - sum(plan[: step + 1]) for step in range(len(seen))]
    assert sum(back for _, back in seen) > 0


def test_the_less_sure_a_token_was_the_likelier_it_goes_back():
    then, here = torch.tensor([[0.9, 0.2, 0.5, 0.7]]), torch.tensor([[True, True, True, False]])
    before, after = torch.tensor([[0.5]]), torch.tensor([[0.75]])
    written = Written(here, then, None, before, after, torch.rand(1, 4))
    sigma = REMASKINGS["remdm-confidence"]().sigma(written)[0]
    shares = torch.tensor([-0.9, -0.2, -0.5]).softmax(0)  # of what keeps the marginals: (1 - 0.75) / 0.5
    torch.testing.assert_close(sigma[:3], 0.5 * shares)
    assert sigma[3] == 0


def candidates(probability, rows=None, quota=1, entropy=None):
    sure = torch.tensor(probability)[None]
    open = sure > 0
    places = torch.arange(sure.shape[1])[None] if rows is None else torch.tensor(rows)[None]
    log_p = torch.stack([sure, 1 - sure], -1).log()
    return Candidates(places, open, torch.zeros_like(places), lambda: log_p, sure, sure, torch.tensor([quota]), 0,
                      lambda: torch.rand_like(sure))  # fmt: skip


def test_adaptive_rules_take_the_best_at_least_and_only_open_positions():
    for name, rule in RULES.items():
        for sure in ([0.0, 0.02, 0.3, 0.01], [0.0, 0.99, 0.999, 0.0]):
            taken = rule()(candidates(sure)) & candidates(sure).open
            assert taken.any() and not taken[0, 0]
            assert name in ("random", "entropy-budget") or taken[0, 2]


def test_what_each_rule_takes():
    sure = [0.95, 0.7, 0.85, 0.5, 0.99]
    assert Threshold(0.85 - 1e-6)(candidates(sure)).tolist() == [[True, False, True, False, True]]
    assert ThresholdOrQuota(0.9)(candidates(sure, quota=3)).tolist() == [[True, False, True, False, True]]
    assert ThresholdOrQuota(0.9)(candidates(sure, quota=1)).tolist() == [[True, False, False, False, True]]
    # runs 0-1 and 3-5: the best of each above 0.6, and whatever is above 0.94
    assert Hierarchical(0.94, 0.6)(candidates(sure, [0, 1, 3, 4, 5])).tolist() == [[True, False, False, False, True]]
    assert Hierarchical(0.999, 0.6)(candidates([0.7, 0.65, 0.62], [0, 2, 4])).tolist() == [[True] * 3]
    assert RULES["factor"](1.0)(candidates([0.9, 0.8, 0.2])).tolist() == [[True, True, False]]
    assert RULES["factor"](1.0)(candidates([0.9, 0.8, 0.7])).tolist() == [[True, True, False]]
    assert RULES["factor"](1.0, published=True)(candidates([0.9, 0.8, 0.7])).tolist() == [[True] * 3]
    assert RULES["entropy-budget"](0.1)(candidates([0.999, 0.99, 0.5])).tolist() == [[True, True, True]]
    assert RULES["entropy-budget"](0.01)(candidates([0.999, 0.99, 0.5])).tolist() == [[True, True, False]]


def test_a_falling_threshold_starts_at_one():
    found = candidates([0.97, 0.985, 0.5])
    falling = Threshold(0.5, falling=0.02)
    assert falling(found).tolist() == [[False, True, False]]
    found.step = 2
    assert falling(found).tolist() == [[True, True, False]]
    found.step = 40
    assert falling(found).all()


@pytest.mark.parametrize("denoiser", [HashDenoiser, None])
def test_a_threshold_above_one_is_one_token_a_step(vocab, small_llada, denoiser):
    denoiser = denoiser(vocab.size) if denoiser else small_llada
    rows = rows_of(vocab)[:1]
    cold = {"quota": even, "temperature": 0.0}
    _, plain = fill(rows, SEEDS[:1], vocab, denoiser, Scheduler(**cold), WholeCanvas(7))
    _, above = fill(rows, SEEDS[:1], vocab, denoiser, Scheduler(**cold, rule=Threshold(1.1)), WholeCanvas(1))
    assert len(plain) == 8 and all(map(torch.equal, plain, above))


def test_credit_is_forgotten_with_its_window(vocab):
    canvas = Canvas(rows_of(vocab)[:1], vocab, SEEDS[:1])
    rows, open = torch.tensor([[1, 2]]), torch.tensor([[True, False]])
    logits = torch.zeros(1, 2, vocab.size)
    logits[..., 9] = 1.0
    process = PROCESSORS["credit"]().open(canvas)
    first, again = process(logits, rows, open), process(logits, rows, open)
    assert first[0, 0, 9] > 1 and again[0, 0, 9] > first[0, 0, 9]
    assert torch.equal(first[0, 1], logits[0, 1])  # nothing is written there
    assert torch.equal(PROCESSORS["credit"]().open(canvas)(logits, rows, open), first)


def test_repeated_tokens_are_punished_and_given_ones_are_not(vocab):
    canvas = Canvas(rows_of(vocab)[1:2], vocab, SEEDS[:1])  # 9 and 10 are given
    canvas.ids[0, 1] = 11
    logits = torch.full((1, 1, vocab.size), 2.0)
    logits[..., 11:] = -2.0
    made = PROCESSORS["repetition-penalty"](2.0).open(canvas)(logits, torch.tensor([[2]]), torch.tensor([[True]]))
    assert made[0, 0, 11] == -4 and torch.equal(made[0, 0].index_fill(0, torch.tensor([11]), -2.0), logits[0, 0])


class EndsEarly(AnswerDenoiser):
    """Knows an answer, but is at first surest of an end right behind the first word, as after padded training."""

    def __init__(self, vocab, words):
        length, self.vocab = len(words) + 3, vocab
        super().__init__({2 + 1 + k: word for k, word in enumerate(words)}, vocab.size, torch.full((length,), 0.6))

    def score(self, ids, key_mask, rows, tokens):
        told = super().score(ids, key_mask, rows, tokens)
        unknown = (ids == self.vocab.mask).sum(1)[:, None, None] > 5            # until something is written
        trap = (rows >= 4)[..., None] & (tokens == self.vocab.eoa)
        return torch.where(trap & unknown, 6.0, told)


def test_early_rejection_finds_an_answer_that_plain_decoding_cuts_short(vocab):
    words = [10, 11, 12, 13, 14, 15]
    answers = []
    for reject in (None, EarlyRejection()):
        answer = torch.tensor([vocab.boa, *[vocab.mask] * 6, vocab.eoa])
        row = Row(answer, {"cond": torch.tensor([8, 9])}, vocab.everything)
        scheduler = Scheduler(quota=even, temperature=0, reject=reject)
        (ids,), _ = fill([row], SEEDS[:1], vocab, EndsEarly(vocab, words), scheduler, WholeCanvas(6))
        answers.append(ids[1:-1].tolist())
    assert vocab.eoa in answers[0][1:4] and answers[1] == words


def test_doubling_and_the_ramp_of_early_rejection_belong_together():
    commits = powers_of_two(127, 7)
    rise = [REJECTIONS["eoser"](0.01, 1.0, "doubling") for _ in commits]
    score, share = torch.zeros(1, 1), torch.ones(1, 1)
    steps, end = torch.tensor([[7]]), torch.tensor([[True]])
    shares = [float(r(score, share, end, (s, steps, share))[1]) for s, r in enumerate(rise)]
    assert shares == pytest.approx([0.01 + 0.99 * sum(commits[: s + 1]) / 128 for s in range(7)])
