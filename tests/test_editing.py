"""Tokens that are replaced in place: how far editing reaches, and that it ends."""

import pytest
import torch

from dimoo.blocks import LeftToRight, WholeCanvas
from dimoo.canvas import Canvas, Row
from dimoo.model.toy import ToyDenoiser
from dimoo.sampling import AnswerEnd, Scheduler, TokenEditing, denoise
from dimoo.sampling.quotas import even

PROMPT = 2


class Toy(ToyDenoiser):
    """Wants `wants(ids, rows)` (B, M) with high probability."""

    def __init__(self, vocab, wants):
        super().__init__(vocab.size)
        self.wants = wants

    def score(self, ids, key_mask, rows, tokens):
        return 9.0 * (self.wants(ids, rows)[..., None] == tokens)


def fill(vocab, denoiser, masks, edit, blocks):
    """(answer ids, forwards)."""
    answer = torch.tensor([vocab.boa, *[vocab.mask] * masks, vocab.eoa])
    canvas = Canvas([Row(answer, {"cond": torch.tensor([8, 9])}, vocab.everything)], vocab, [(0, 0)])
    scheduler = Scheduler(quota=even, temperature=0, edit=edit)
    forwards = denoise(canvas, denoiser, scheduler=scheduler, blocks=blocks, stop=AnswerEnd())
    return canvas.row(0)[1:-1].tolist(), forwards


def hindsight(vocab):
    """9 everywhere; but once the last position is written, 12 at the first."""

    def wants(ids, rows):
        known = (ids[:, -2] != vocab.mask)[:, None] & (rows == PROMPT + 1)
        return torch.where(known, 12, 9)

    return Toy(vocab, wants)


@pytest.mark.parametrize(("reach", "first"), [("window", 9), ("answer", 12)])
def test_how_far_editing_reaches(vocab, reach, first):
    ids, _ = fill(vocab, hindsight(vocab), 6, TokenEditing(reach=reach), LeftToRight(6, 2))
    assert ids == [first, *[9] * 5]
    assert fill(vocab, hindsight(vocab), 6, TokenEditing(reach=reach), WholeCanvas(6))[0] == [12, *[9] * 5]


@pytest.mark.parametrize("reach", ["window", "answer"])
def test_two_sure_contradictions_do_not_swap_for_ever(vocab, reach):
    def wants(ids, rows):
        return torch.where(ids.gather(1, rows) == 9, 10, 9)  # always the other one

    ids, forwards = fill(vocab, Toy(vocab, wants), 4, TokenEditing(threshold=0.0, reach=reach), LeftToRight(2, 4))
    assert set(ids) <= {9, 10} and forwards <= 6


def test_the_steps_after_the_last_mask_are_counted(vocab):
    def wants(ids, rows):
        return (ids.gather(1, rows) + 1 - 9).clamp(0, 6) + 9  # another one at every step, up to 15

    for most in (0, 2, 16):
        ids, forwards = fill(vocab, Toy(vocab, wants), 1, TokenEditing(0.0, most), WholeCanvas(1))
        assert ids == [9 + min(most, 6)] and forwards == 1 + min(most, 7)


def test_a_passage_is_edited_without_a_mask_in_it(vocab):
    answer = torch.tensor([vocab.boa, 10, 11, 10, vocab.eoa])
    free = torch.tensor([False, True, False, True, False])
    row = Row(answer, {"cond": torch.tensor([8, 9])}, vocab.everything, rewritable=free)
    canvas = Canvas([row], vocab, [(0, 0)])
    scheduler = Scheduler(quota=even, temperature=0, edit=TokenEditing())
    denoise(canvas, Toy(vocab, lambda ids, rows: torch.full_like(rows, 9)), scheduler=scheduler, blocks=WholeCanvas(4))
    assert canvas.row(0).tolist() == [vocab.boa, 9, 11, 9, vocab.eoa]


def test_a_reach_that_there_is_not():
    with pytest.raises(ValueError, match="editing reaches window or answer, got 'all'"):
        TokenEditing(reach="all")
