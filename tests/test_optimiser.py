"""Muon and AdamW behind one step: who moves what, kernels seen as matrices, exact resumption, the rate's course."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from dimoo_training.optimiser import Optimiser, warmup_then_decay
from dimoo_training.state import load_state, save_state


class Net(nn.Module):
    """A kernel, a matrix, an embedding, vectors, and a part that does not learn."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wte = nn.Embedding(5, 8)
        self.kernel = nn.Conv2d(3, 6, 3)
        self.dense = nn.Linear(6, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        return self.frozen(self.dense(self.kernel(x).mean((2, 3)))).square().mean() + self.wte.weight.square().mean()


def inputs(seed):
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def steps(net, optimiser, seeds):
    for seed in seeds:
        net(inputs(seed)).backward()
        optimiser.step()


def test_matrices_and_the_rest_are_shared_out(small_llada):
    model = small_llada
    muon, adam = (
        {id(p) for group in part.param_groups for p in group["params"]} for part in Optimiser(model, 0.1).parts
    )
    assert not muon & adam
    for name, p in model.named_parameters():
        matrix = name.startswith("model.transformer.blocks.") and "norm" not in name
        assert (id(p) in muon, id(p) in adam) == (matrix, not matrix), name


def test_a_kernel_moves_as_its_matrix():
    net, twin = Net(), Net()
    optimiser = Optimiser(net, 0.1, 0.02)
    matrices = [nn.Parameter(p.data.flatten(1).clone()) for p in (twin.kernel.weight, twin.dense.weight)]
    reference = torch.optim.Muon(matrices, lr=0.1, momentum=0.95, weight_decay=0.0)
    for seed in range(3):
        twin.load_state_dict(net.state_dict())
        twin.zero_grad()
        twin(inputs(seed)).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
        for matrix, p in zip(matrices, (twin.kernel.weight, twin.dense.weight), strict=True):
            matrix.grad = p.grad.flatten(1)
        before = net.kernel.weight.clone()
        steps(net, optimiser, [seed])
        reference.step()
        assert not torch.equal(net.kernel.weight, before)
        assert torch.equal(net.kernel.weight.flatten(1), matrices[0])
        assert torch.equal(net.dense.weight, matrices[1])


def test_one_step_moves_all_that_learns_and_clears_gradients():
    net = Net()
    before = {name: p.clone() for name, p in net.named_parameters()}
    optimiser = Optimiser(net, 0.1, 0.02)
    (1000 * net(inputs(0))).backward()
    norm = torch.stack([p.grad.norm() for p in net.parameters() if p.grad is not None]).norm()
    assert optimiser.step(0.5) == pytest.approx(float(norm), rel=1e-5)
    moved = {name for name, p in net.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name in before if "frozen" not in name}
    assert all(p.grad is None for p in net.parameters())
    assert [group["lr"] for part in optimiser.parts for group in part.param_groups] == [0.05, 0.01]
    first = (net.wte.weight - before["wte.weight"]).abs().max().item()
    assert first == pytest.approx(0.01, rel=1e-3)                   # AdamW's first step is its rate


def test_a_restored_optimiser_goes_on_exactly(tmp_path):
    net = Net()
    optimiser = Optimiser(net, 0.1, 0.02)
    steps(net, optimiser, range(3))
    save_state(tmp_path / "state.pt", {"net": net.state_dict(), "optimiser": optimiser.state_dict()})
    steps(net, optimiser, (3, 4))

    other = Net()
    resumed = Optimiser(other, 0.1, 0.02)
    saved = load_state(tmp_path / "state.pt")
    other.load_state_dict(saved["net"])
    resumed.load_state_dict(saved["optimiser"])
    steps(other, resumed, (3, 4))
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    momenta = [view.matrix for view in optimiser.views], [view.matrix for view in resumed.views]
    for one, two in zip(*momenta, strict=True):
        buffers = (o.parts[0].state[m]["momentum_buffer"] for o, m in ((optimiser, one), (resumed, two)))
        assert torch.equal(*buffers)


def test_the_rate_warms_up_stays_and_falls_to_nothing():
    rates = [warmup_then_decay(step / 1000) for step in range(1001)]
    assert 0 < rates[0] < 0.1
    assert all(a < b for a, b in pairwise(rates[:20]))
    assert set(rates[20:601]) == {1.0}
    assert all(a > b for a, b in pairwise(rates[600:]))
    assert rates[800] == pytest.approx(0.5) and rates[1000] == 0
