"""The state of a generation: what may be written, where the masks are, and the sequences the network reads."""

import pytest
import torch

from dimoo.canvas import Canvas, Row, Sequences, Update

M, P = 1, 0  # mask and padding of the test vocabulary


def row(vocab, *answer, **conditions):
    return Row(torch.tensor(answer), {name: torch.tensor(ids) for name, ids in conditions.items()}, vocab.everything)


@pytest.fixture
def canvas(vocab):
    rows = [row(vocab, 6, M, 9, M, M, 7, cond=[8, 9], uncond=[5]), row(vocab, 6, M, 7, cond=[10, 11, 12], uncond=[5])]
    return Canvas(rows, vocab, [(0, 0), (0, 1)])


def update(rows, ids, write=None):
    rows, ids = torch.tensor(rows), torch.tensor(ids)
    write = torch.ones_like(rows, dtype=torch.bool) if write is None else torch.tensor(write)
    return Update(rows, ids, write, torch.ones(rows.shape))


def test_rows_are_padded_at_their_end(canvas):
    assert canvas.ids.tolist() == [[6, M, 9, M, M, 7], [6, M, 7, P, P, P]]
    assert canvas.editable.tolist() == canvas.masked.tolist() == [[0, 1, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0]]
    assert (len(canvas), canvas.lengths) == (2, [6, 3])
    assert canvas.row(1).tolist() == [6, M, 7]


def test_a_row_is_a_copy(canvas):
    before = canvas.row(0)
    canvas.apply(update([[1], [1]], [[20], [20]]))
    assert before[1] == M and canvas.row(0)[1] == 20


def test_what_cannot_be_a_canvas(vocab):
    one = row(vocab, 6, M, 7)
    with pytest.raises(ValueError, match="at least one row"):
        Canvas([], vocab, [])
    with pytest.raises(ValueError, match="2 rows need 2 seeds, got 1"):
        Canvas([one, one], vocab, [(0, 0)])
    with pytest.raises(ValueError, match=r"share a vocabulary slice.*24.*40"):
        Canvas([one, Row(one.answer, {}, vocab.codes)], vocab, [(0, 0)] * 2)


def test_an_update_writes_where_it_may(canvas):
    canvas.apply(update([[1, 2, 3], [1, 2, 5]], [[20, 21, 22], [23, 24, 25]], [[True, True, False], [True] * 3]))
    assert canvas.ids.tolist() == [[6, 20, 9, M, M, 7], [6, 23, 7, P, P, P]]
    assert canvas.masked.tolist() == [[0, 0, 0, 1, 1, 0], [0] * 6]


def test_an_update_says_what_it_wrote(canvas):
    made = update([[1, 2], [1, 2]], [[20, 21], [22, 23]])
    canvas.apply(made)
    assert made.write.tolist() == [[True, False], [True, False]]


def test_a_position_can_be_put_back_to_mask_and_edited(canvas):
    for ids in ([[20], [21]], [[M], [22]], [[23], [M]]):
        canvas.apply(update([[1], [1]], ids))
        assert canvas.ids[:, 1].tolist() == [ids[0][0], ids[1][0]]
    assert canvas.masked.tolist() == [[0, 0, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0]]


def test_a_finished_row_is_left_alone(canvas):
    canvas.done[0] = True
    canvas.apply(update([[1], [1]], [[20], [20]]))
    assert canvas.ids[:, 1].tolist() == [M, 20]


def test_open_rows_are_the_masks_in_order(canvas):
    window = canvas.window(torch.ones(2, 6, dtype=torch.bool), [4, 4])
    assert (window.counts, window.steps) == ([3, 1], [4, 4])
    rows, valid = canvas.open_rows(window, 3)
    assert rows[0].tolist() == [1, 3, 4] and rows[1, 0] == 1
    assert valid.tolist() == [[True] * 3, [True, False, False]]
    assert all(len(set(each)) == 3 for each in rows.tolist())  # so that scattering is safe
    canvas.apply(update([[3], [1]], [[20], [20]]))
    rows, valid = canvas.open_rows(window, 2)
    assert rows[0].tolist() == [1, 4]
    assert valid.tolist() == [[True, True], [False, False]]


def test_a_window_closes_what_is_outside(canvas):
    window = canvas.window(torch.tensor([[0, 0, 1, 1, 1, 0], [0] * 6], dtype=torch.bool), [2, 2])
    assert window.counts == [2, 0]
    rows, valid = canvas.open_rows(window, 2)
    assert rows[0].tolist() == [3, 4] and valid.tolist() == [[True, True], [False, False]]


def test_sequences_put_each_condition_before_each_answer(canvas):
    sequences = Sequences(canvas, ("cond", "uncond"))
    expected = [[8, 9, 6, M, 9, M, M, 7], [10, 11, 12, 6, M, 7], [5, 6, M, 9, M, M, 7], [5, 6, M, 7]]
    assert sequences.lengths == [8, 6, 7, 4]
    for ids, mask, wanted in zip(sequences.ids, sequences.key_mask, expected, strict=True):
        assert ids[: len(wanted)].tolist() == wanted
        assert mask.tolist() == [True] * len(wanted) + [False] * (8 - len(wanted))


def test_sequences_follow_the_canvas(canvas):
    sequences = Sequences(canvas, ("cond", "uncond"))
    canvas.apply(update([[3], [1]], [[20], [21]]))
    sequences.read(canvas)
    answers = [sequences.ids[k, s : s + 3].tolist() for k, s in enumerate((2, 3, 1, 1))]
    assert answers == [[6, M, 9], [6, 21, 7], [6, M, 9], [6, 21, 7]]
    assert sequences.ids[0, 5] == sequences.ids[2, 4] == 20
    assert sequences.ids[1, :3].tolist() == [10, 11, 12]  # the condition stays


def test_positions_are_shifted_by_each_condition(canvas):
    sequences = Sequences(canvas, ("cond", "uncond"))
    where = sequences.positions(torch.tensor([[1, 3], [1, 2]]))
    assert where.tolist() == [[3, 5], [4, 5], [2, 4], [2, 3]]
    assert sequences.ids.gather(1, where).tolist() == [[M, M], [M, 7], [M, M], [M, 7]]


def test_positions_behind_a_short_answer_stay_inside(canvas):
    sequences = Sequences(canvas, ("cond",))
    where = sequences.positions(torch.tensor([[1, 5], [1, 5]]))
    assert where.tolist() == [[3, 7], [4, 5]]


def test_other_ids_are_taken_where_we_may_write(canvas):
    canvas.apply(update([[1], [1]], [[20], [21]]))
    canvas.replace(torch.tensor([[8, M, 8, 22, M, 8], [8, 23, 8, 8, 8, 8]]))
    assert canvas.ids.tolist() == [[6, 20, 9, 22, M, 7], [6, 23, 7, P, P, P]]  # and what was filled is not opened


def test_the_first_branches_are_a_view(canvas):
    sequences = Sequences(canvas, ("cond", "uncond"))
    first = sequences.first(1)
    assert (first.branches, first.lengths, first.starts.tolist()) == (("cond",), [8, 6], [2, 3])
    assert torch.equal(first.ids, sequences.ids[:2]) and torch.equal(first.key_mask, sequences.key_mask[:2])
    canvas.apply(update([[1], [1]], [[20], [20]]))
    sequences.read(canvas)
    assert first.ids[0, 3] == 20
    assert first.positions(torch.tensor([[1], [1]])).tolist() == [[3], [4]]


def test_there_is_no_mask_when_nothing_is_padded(vocab):
    rows = [row(vocab, 6, M, 7, cond=[8, 9]), row(vocab, 6, M, 7, cond=[10, 11])]
    assert Sequences(Canvas(rows, vocab, [(0, 0)] * 2), ("cond",)).key_mask is None
    rows[1] = row(vocab, 6, M, 7, cond=[10])
    assert Sequences(Canvas(rows, vocab, [(0, 0)] * 2), ("cond",)).key_mask is not None


def test_a_missing_branch_is_named(canvas):
    with pytest.raises(ValueError, match=r"no branch 'no_image'; it has: cond, uncond"):
        Sequences(canvas, ("cond", "no_image"))
