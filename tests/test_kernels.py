"""Every fused kernel gives what its plain twin gives, at sizes that fit no block, and really runs.

On a machine without a GPU the kernels run in Triton's interpreter, which `conftest.py` switches on.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dimoo import ops
from dimoo.bench import kernels
from dimoo.cache import KVStore
from dimoo.model import LLaDAConfig, LLaDAForMultiModalGeneration
from dimoo.stream import RandomStream

dimoo_kernels = pytest.importorskip("dimoo_kernels", exc_type=ImportError)

ROOT = Path(__file__).parents[1]
KERNELS = set(dimoo_kernels.__all__) - {"calls", "device_seconds"}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WITHIN = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}
"""dtype -> relative and absolute tolerance: one rounding of the result."""

dtypes = pytest.mark.parametrize("dtype", WITHIN, ids=lambda dtype: str(dtype).removeprefix("torch."))


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def draw(*shape, dtype=torch.float32, seed=0, scale=1.0):
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale
    return values.to(DEVICE, dtype)


def both(monkeypatch, name, make, launches=1):
    """What an operation gives fused, and plain; `make` builds its arguments afresh for each."""
    results = []
    for choice in ("on", "off"):
        monkeypatch.setenv("DIMOO_KERNELS", choice)
        before = dimoo_kernels.calls[name]
        given = make()
        results.append((getattr(ops, name)(*given), given))
        assert dimoo_kernels.calls[name] - before == (launches if choice == "on" else 0)  # that branch ran
    return results


def close(one, two, dtype):
    assert one.dtype == two.dtype and one.shape == two.shape
    torch.testing.assert_close(one, two, rtol=WITHIN[dtype], atol=WITHIN[dtype])


@dtypes
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 5, 130), (2, 3, 4, 64)])
def test_rms_norm(shape, dtype, monkeypatch):
    def make():
        return draw(*shape, dtype=dtype, scale=3), draw(shape[-1], dtype=dtype, seed=1), 1e-5

    (fused, _), (plain, _) = both(monkeypatch, "rms_norm", make)
    close(fused, plain, dtype)


def test_rms_norm_of_a_transposed_view(monkeypatch):
    def make():
        return draw(2, 5, 3, 8).transpose(1, 2), draw(8, seed=1), 1e-5

    (fused, _), (plain, _) = both(monkeypatch, "rms_norm", make)
    close(fused, plain, torch.float32)


@dtypes
@pytest.mark.parametrize("shape", [(1,), (3, 341), (2, 1025)])
def test_swiglu(shape, dtype, monkeypatch):
    def make():
        return draw(*shape, dtype=dtype, scale=4), draw(*shape, dtype=dtype, seed=1)

    (fused, _), (plain, _) = both(monkeypatch, "swiglu", make)
    close(fused, plain, dtype)


@dtypes
@pytest.mark.parametrize(("heads", "groups", "width"), [(3, 3, 10), (6, 2, 64), (1, 1, 2)])
@pytest.mark.parametrize("where", ["in order", "at rows", "no queries"])
def test_rope_into(heads, groups, width, where, dtype, monkeypatch):
    batch, rows, length = 2, 5, 9

    def make():
        shape = (batch, rows, width)
        q, k, v = (draw(batch, rows, n, width, dtype=dtype, seed=n) for n in (heads, groups, groups))
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # as they come from the projections
        places = torch.tensor([[4, 0, 8, 2, 4], [1, 2, 3, 7, 1]], device=DEVICE)
        k[:, :, 4], v[:, :, 4] = k[:, :, 0], v[:, :, 0]  # a repeated row agrees with itself
        turn = ops.rope_tables(places, width, 100.0)
        target = (places + torch.tensor([[0], [length]], device=DEVICE)).flatten()
        size = length
        if where == "in order":
            target, size, turn = None, rows, ops.rope_tables(torch.arange(rows, device=DEVICE), width, 100.0)
        store = draw(batch, size, groups, width, dtype=dtype, seed=7)
        assert q.shape[-1] == shape[-1]
        return None if where == "no queries" else q, k, v, turn, store, store.clone(), target

    (fused, ours), (plain, theirs) = both(monkeypatch, "rope_into", make)
    assert (fused is None) == (plain is None) == (where == "no queries")
    if fused is not None:
        close(fused, plain, dtype)
    close(ours[4], theirs[4], dtype)
    assert torch.equal(ours[5], theirs[5])


@dtypes
@pytest.mark.parametrize(("heads", "width"), [(3, 10), (1, 2), (5, 64)])
@pytest.mark.parametrize("shared", [True, False])
def test_apply_rope(heads, width, shared, dtype, monkeypatch):
    def make():
        x = draw(2, 7, heads, width, dtype=dtype).transpose(1, 2)  # as it comes from a projection
        positions = torch.arange(14, device=DEVICE).view(2, 7)
        return x, *ops.rope_tables(positions[0] if shared else positions, width, 100.0)

    (fused, _), (plain, _) = both(monkeypatch, "apply_rope", make)
    close(fused, plain, dtype)


@dtypes
@pytest.mark.parametrize("trailing", [(3,), (2, 513)])
def test_rows(trailing, dtype, monkeypatch):
    rows = torch.tensor([[4, 0, 6], [2, 2, 5]], device=DEVICE)

    def gather():
        return draw(2, 7, *trailing, dtype=dtype), rows

    def scatter():
        values = draw(2, 3, *trailing, dtype=dtype, seed=1)
        values[1, 1] = values[1, 0]
        return draw(2, 7, *trailing, dtype=dtype), rows, values

    for name, make in (("gather_rows", gather), ("scatter_rows", scatter)):
        (fused, _), (plain, _) = both(monkeypatch, name, make)
        assert torch.equal(fused, plain)


@dtypes
@pytest.mark.parametrize("weights", [(1.0,), (5.0, -4.0), (7.5, -2.5, -4.0)])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("width", "forbidden"), [(5, None), (1025, 3), (2048, 2047)])
def test_guided_sample(weights, temperature, width, forbidden, dtype, monkeypatch):
    batch, rows = 2, 3

    def make():
        logits = draw(len(weights) * batch, rows, width, dtype=dtype, scale=3)
        where = torch.arange(rows, device=DEVICE).expand(batch, -1)
        keys = RandomStream([(1, 0), (2, 1)], DEVICE).at(1, 5, where)
        return logits, weights, temperature, keys, forbidden

    ((ids, log_p), given), ((plain_ids, plain_log_p), _) = both(monkeypatch, "guided_sample", make)
    assert torch.equal(ids, plain_ids) and forbidden not in ids.flatten().tolist()
    torch.testing.assert_close(log_p, plain_log_p, rtol=1e-4, atol=1e-4)
    expected = ops.combine(given[0], weights)
    if forbidden is not None:
        expected[..., forbidden] = -torch.inf
    expected = expected.double().log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    torch.testing.assert_close(log_p.double(), expected, rtol=1e-4, atol=1e-4)


@dtypes
@pytest.mark.parametrize("shape", [(1, 3), (2, 3, 700), (5, 2049)])
def test_chosen_log_prob_and_its_gradient(shape, dtype, monkeypatch):
    ids = torch.arange(torch.Size(shape[:-1]).numel(), device=DEVICE).view(shape[:-1]) % shape[-1]
    results = []
    for choice in ("on", "off"):
        monkeypatch.setenv("DIMOO_KERNELS", choice)
        logits = draw(*shape, dtype=dtype, scale=3).requires_grad_()
        before = dimoo_kernels.calls["chosen_log_prob_backward"]
        with torch.enable_grad():
            log_p = ops.chosen_log_prob(logits, ids)
            (log_p * draw(*shape[:-1], seed=9)).sum().backward()
        assert dimoo_kernels.calls["chosen_log_prob_backward"] - before == (choice == "on")
        results.append((log_p.detach(), logits.grad))
    (fused, slope), (plain, plain_slope) = results
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-4)
    close(slope, plain_slope, dtype)


def test_a_whole_model_runs_on_the_kernels(monkeypatch):
    torch.manual_seed(0)
    config = LLaDAConfig(
        d_model=24, n_heads=3, n_layers=2, mlp_hidden_size=40, vocab_size=50, mask_token_id=1, initializer_range=0.3
    )
    model = LLaDAForMultiModalGeneration(config).eval().to(DEVICE)
    ids, logits = torch.arange(2 * 11, device=DEVICE).view(2, 11), []
    for choice in ("on", "off"):
        monkeypatch.setenv("DIMOO_KERNELS", choice)
        before = dimoo_kernels.calls.copy()
        store = KVStore()
        model(ids, kv=store)
        rows = torch.tensor([[3, 5, 0], [10, 2, 3]], device=DEVICE)
        logits.append(model(ids + 3, kv=store, rows=rows, logit_rows=rows[:, :1] % 3).logits)
        ran = dimoo_kernels.calls - before
        used = {"rms_norm", "swiglu", "rope_into", "apply_rope", "gather_rows"}
        assert set(ran) == (used if choice == "on" else set())
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)


def test_every_kernel_is_measured():
    ours = {"log_prob_gradient": "chosen_log_prob", "rope_into_rows": "rope_into"}
    assert {ours.get(name, name) for name in kernels.names()} == KERNELS
    for name in kernels.names():
        assert kernels.parity(name, torch.device(DEVICE), torch.float32, kernels.SMALL) < 1e-5
        row = kernels.speed(name, "plain", torch.device(DEVICE), torch.float32, kernels.SMALL, repeats=1)
        assert row["us"] > 0 and row["gb_per_second"] > 0


def test_a_kernel_that_is_off_is_seen(monkeypatch):
    monkeypatch.setattr(dimoo_kernels, "swiglu", lambda gate, up: gate * up)
    monkeypatch.setattr(dimoo_kernels, "rms_norm", lambda x, weight, eps: x * torch.nan)
    monkeypatch.setattr(dimoo_kernels, "guided_sample", lambda *given: (given[3] * 0, given[3].float()))
    for name in ("swiglu", "rms_norm", "guided_sample"):
        assert kernels.parity(name, torch.device(DEVICE), torch.float32, kernels.SMALL) > 0.1


COMPILE = """
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import dimoo_kernels, sys
from dimoo.bench import kernels

TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int64: "*i64", int: "i32", float: "fp32"}

def compiled(name, kernel, grid, device, *given, num_warps=4, **constants):
    kinds = [TYPES[x.dtype if isinstance(x, torch.Tensor) else type(x)] for x in given]
    signature = dict(zip(kernel.arg_names, kinds)) | dict.fromkeys(constants, "constexpr")
    for capability in (80, 90):
        source, target = ASTSource(kernel, signature, constants), GPUTarget("cuda", capability, 32)
        assert triton.compile(source, target=target, options={"num_warps": num_warps}).asm["cubin"]
    print(name)

for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith("dimoo_kernels."):
        module.launch = compiled
for name in kernels.names():
    operation, given, _ = kernels.cases(kernels.SMALL, torch.device("cpu"), torch.bfloat16)[name]
    with kernels.choose("on"):
        operation(*given)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="triton's compiler is there for linux only")
def test_every_kernel_compiles_for_gpus_that_are_not_there(tmp_path):
    """What the interpreter forgives (types, shapes, constants) the compiler does not."""
    path = os.pathsep.join(str(ROOT / part) for part in ("", "kernels"))
    env = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path)}
    env.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    launched = set(done.stdout.split())
    assert launched == KERNELS | {"chosen_log_prob_backward"}


def test_what_needs_a_gradient_is_left_to_torch(monkeypatch):
    monkeypatch.setenv("DIMOO_KERNELS", "on")
    before = dimoo_kernels.calls.copy()
    with torch.enable_grad():
        x = draw(2, 8).requires_grad_()
        ops.swiglu(ops.rms_norm(x, draw(8), 1e-5), x).sum().backward()
    assert dimoo_kernels.calls == before and x.grad.abs().sum() > 0


def test_a_wrong_choice_is_named(monkeypatch):
    monkeypatch.setenv("DIMOO_KERNELS", "yes")
    with pytest.raises(ValueError, match="DIMOO_KERNELS='yes'; allowed: auto, on, off"):
        ops.swiglu(draw(2), draw(2))


def test_without_a_gpu_the_choice_is_plain(monkeypatch):
    monkeypatch.delenv("DIMOO_KERNELS", raising=False)
    assert (ops.kernels(draw(2)) is None) == (DEVICE == "cpu")
