"""Packed sequences give what a masked batch gives, and nothing is computed for padding."""

import pytest
import torch

from dimoo.cache import KVStore
from dimoo.late import Late
from dimoo.packing import MOST, Packing

LENGTHS = [11, 4, 7]


@pytest.fixture
def packing():
    return Packing.of(LENGTHS, 11)


@pytest.fixture
def ids(vocab):
    return torch.randint(8, vocab.size, (3, 11), generator=torch.Generator().manual_seed(0))


def test_packing_there_and_back(packing):
    x = torch.arange(66.0).view(3, 11, 2)
    packed = packing.pack(x)
    assert packed.shape == (1, sum(LENGTHS), 2)
    back = packing.unpack(packed)
    for row, length in enumerate(LENGTHS):
        assert torch.equal(back[row, :length], x[row, :length]) and not back[row, length:].any()
    rows = torch.tensor([[0, 10], [3, 1], [6, 6]])
    assert torch.equal(packing.take(packed, rows), x[torch.arange(3)[:, None], rows])


def test_there_is_no_packing_where_it_would_not_help():
    assert Packing.of([5, 5], 5) is None
    assert Packing.of([5, 4], 5) is not None
    assert Packing.of([4] * (MOST + 1), 5) is None


def masked(length=11):
    return torch.arange(length) < torch.tensor(LENGTHS)[:, None]


@torch.no_grad()
@pytest.mark.parametrize("asked", [None, [[10, 0], [3, 2], [6, 1]]])
def test_a_packed_pass_is_a_masked_one(small_llada, packing, ids, asked):
    rows = None if asked is None else torch.tensor(asked)
    given = {"key_mask": masked(), "logit_rows": rows}
    expected = small_llada(ids, **given).logits
    found = small_llada(ids, **given, packing=packing).logits
    if rows is None:
        expected, found = expected[masked()], found[masked()]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_packed_pass_fills_the_store_that_a_masked_one_fills(small_llada, packing, ids):
    stores, rows = [KVStore(), KVStore()], torch.tensor([[1, 9], [3, 0], [2, 5]])
    partial = []
    for store, given in zip(stores, ({}, {"packing": packing}), strict=True):
        small_llada(ids, key_mask=masked(), kv=store, **given)
        partial.append(small_llada(ids.flip(0), key_mask=masked(), kv=store, rows=rows, **given).logits)
    torch.testing.assert_close(*partial, rtol=1e-5, atol=1e-5)
    for layer in stores[0].keys:
        one, two = (store.keys[layer][masked()] for store in stores)
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_padding_is_not_computed(small_llada, packing, ids):
    seen = []
    hooks = [block.ff_proj.register_forward_hook(lambda *x: seen.append(tuple(x[1][0].shape[:2])))
             for block in small_llada.parts.blocks]  # fmt: skip
    small_llada(ids, key_mask=masked(), packing=packing, logit_rows=torch.tensor([[1, 2], [0, 3], [4, 5]]))
    for hook in hooks:
        hook.remove()
    assert seen == [(1, sum(LENGTHS)), (3, 2)]  # and the last layer computes the asked rows only


def test_flags_of_the_host_are_read_at_once():
    late = Late()
    assert late(True) is True
    assert late(torch.tensor([True, False])).tolist() == [True, False]


def test_flags_of_a_gpu_are_read_one_call_later(monkeypatch):
    waited = []

    class Event:
        def record(self):
            waited.append("recorded")

        def synchronize(self):
            waited.append("waited")

    class Flags:
        """As a tensor on a GPU."""

        is_cuda = True

        def __init__(self, value):
            self.value = value

    monkeypatch.setattr("dimoo.late.to_host", lambda flags: flags.value)
    monkeypatch.setattr("dimoo.late.Tensor", Flags)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    late = Late()
    assert [late(Flags(k)) for k in range(3)] == [None, 0, 1]
    assert waited == ["recorded", "recorded", "waited", "recorded", "waited"]
