"""The backbone reproduces the recorded arithmetic, and every shortcut gives what the long way gives."""

import inspect
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dimoo import ops
from dimoo.cache.store import KVStore
from dimoo.model import (
    MODELS,
    AnswerDenoiser,
    HashDenoiser,
    LLaDAConfig,
    LLaDAForMultiModalGeneration,
    memory_estimate,
    parameter_count,
)

GOLDEN = Path(__file__).parent / "golden"
FAMILIES = ["mha", "gqa"]
TINY = dict(d_model=32, n_heads=4, n_layers=2, mlp_hidden_size=48, vocab_size=60, mask_token_id=3)
VARIANTS = {
    "plain": {},
    "grouped keys": {"n_kv_heads": 2},
    "one key head": {"n_kv_heads": 1},
    "qk_norm": {"qk_norm": True},
    "qkv bias": {"include_qkv_bias": True},
    "tied": {"weight_tying": True},
    "padded vocabulary": {"embedding_size": 64},
    "all": {"n_kv_heads": 2, "qk_norm": True, "include_qkv_bias": True, "weight_tying": True},
}


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def golden(family):
    model = LLaDAForMultiModalGeneration.from_pretrained(GOLDEN / family / "model")
    return model.eval(), load_file(GOLDEN / family / "traces.safetensors")


def tiny(seed=0, **fields):
    """A model in which every weight matters: nothing is zero or one, as it is after initialisation."""
    model = LLaDAForMultiModalGeneration(LLaDAConfig(**TINY | fields))
    torch.manual_seed(seed)
    for weight in model.parameters():
        weight.copy_(torch.randn_like(weight) / math.sqrt(weight.shape[-1]) + (weight.dim() == 1))
    return model.eval()


def some_ids(batch=2, length=24):
    return torch.randint(0, TINY["vocab_size"], (batch, length), generator=torch.Generator().manual_seed(5))


def close(one, two, within=1e-5):
    torch.testing.assert_close(one, two, atol=within, rtol=0)


def test_the_recorded_logits(family):
    model, traces = golden(family)
    close(model(traces["forward.input_ids"].long()).logits, traces["forward.logits"], 1e-4)


def test_a_recorded_partial_pass():
    model, traces = golden("mha")
    store = KVStore()
    first = model(traces["cache.first_ids"].long(), kv=store).logits
    close(first, traces["cache.first_logits"], 1e-4)
    rows = traces["cache.recompute_mask"].nonzero()[:, 1].unsqueeze(0)
    fresh = model(traces["cache.second_ids"].long(), kv=store, rows=rows).logits
    close(ops.scatter_rows(first.clone(), rows, fresh), traces["cache.second_logits"], 1e-4)


def reference(model, ids):
    """The paper's arithmetic in float64, one head at a time, with complex rotations."""
    config, w = model.config, {name: value.double() for name, value in model.state_dict().items()}
    heads, groups, d = config.n_heads, config.n_kv_heads, config.head_dim

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * w[f"{name}.weight"]

    def project(x, name, count):
        x = x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)
        return x.unflatten(-1, (count, d)).unbind(-2)

    def rotate(x):
        speed = config.rope_theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        turn = torch.exp(1j * torch.arange(x.shape[1]).unsqueeze(-1) * speed)
        turned = torch.complex(*x.chunk(2, -1)) * turn
        return torch.cat([turned.real, turned.imag], -1)

    x = w["model.transformer.wte.weight"][ids]
    for i in range(config.n_layers):
        at = f"model.transformer.blocks.{i}"
        h = norm(x, f"{at}.attn_norm")
        q, k, v = (
            project(h, f"{at}.{name}_proj", n) for name, n in (("q", heads), ("k", groups), ("v", groups))
        )
        if config.qk_norm:
            q, k = [norm(one, f"{at}.q_norm") for one in q], [norm(one, f"{at}.k_norm") for one in k]
        mixed = []
        for head in range(heads):
            group = head * groups // heads
            scores = rotate(q[head]) @ rotate(k[group]).mT / math.sqrt(d)
            mixed.append(scores.softmax(-1) @ v[group])
        x = x + torch.cat(mixed, -1) @ w[f"{at}.attn_out.weight"].T
        h = norm(x, f"{at}.ff_norm")
        gate, up = h @ w[f"{at}.ff_proj.weight"].T, h @ w[f"{at}.up_proj.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ w[f"{at}.ff_out.weight"].T
    head = "wte" if config.weight_tying else "ff_out"
    return norm(x, "model.transformer.ln_f") @ w[f"model.transformer.{head}.weight"].T


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_the_textbook_model(variant):
    model, ids = tiny(**VARIANTS[variant]), some_ids()
    close(model(ids).logits.double(), reference(model, ids), 1e-4)


def test_variants_have_the_tensors_they_need_and_no_others():
    plain = {name for name, _ in tiny().named_parameters()}

    def differs(variant):
        return {name.split("blocks.0.")[-1] for name in variant ^ plain if "blocks.1." not in name}

    biases = {"q_proj.bias", "k_proj.bias", "v_proj.bias"}
    expected = {
        "qk_norm": {"q_norm.weight", "k_norm.weight"},
        "qkv bias": biases,
        "tied": {"model.transformer.ff_out.weight"},
        "padded vocabulary": set(),
    }
    for variant, names in expected.items():
        found = {name for name, _ in tiny(**VARIANTS[variant]).named_parameters()}
        assert differs(found) == names, variant
    assert tiny(embedding_size=64)(some_ids()).logits.shape[-1] == 64


def test_qk_norm_forgets_the_scale_of_queries_and_keys():
    model, ids = tiny(qk_norm=True), some_ids()
    before = model(ids).logits
    for block in model.parts.blocks:
        block.q_proj.weight *= 64
        block.k_proj.weight *= 16
    close(model(ids).logits, before, 1e-3)


def test_angles_are_float32_in_a_bfloat16_model(monkeypatch):
    model, seen, plain = tiny().bfloat16(), [], ops.apply_rope

    def watch(x, cos, sin):
        out = plain(x, cos, sin)
        seen.append((x.dtype, cos.dtype, out.dtype))
        assert torch.equal(out, plain(x.float(), cos, sin).bfloat16())
        return out

    monkeypatch.setattr(ops, "apply_rope", watch)
    logits = model(some_ids()).logits
    assert logits.dtype == torch.bfloat16
    assert set(seen) == {(torch.bfloat16, torch.float32, torch.bfloat16)}
    cos, _ = ops.rope_tables(torch.tensor([4001, 4002]), 8, 1e4)  # bfloat16 cannot tell these positions apart
    close(cos[0, :, 0].double(), torch.tensor([4001.0, 4002.0]).double().cos(), 1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_padded_batch_equals_its_rows_alone(variant):
    model, ids, lengths = tiny(**VARIANTS[variant]), some_ids(3, 24), [24, 9, 1]
    key_mask = torch.arange(24) < torch.tensor(lengths).unsqueeze(1)
    together = model(ids, key_mask=key_mask).logits
    for row, length in enumerate(lengths):
        close(together[row, :length], model(ids[row : row + 1, :length]).logits[0])
    rewritten = model(torch.where(key_mask, ids, 7), key_mask=key_mask).logits
    assert torch.equal(rewritten[key_mask], together[key_mask])


@pytest.mark.parametrize("variant", VARIANTS)
def test_chosen_rows_and_columns_are_a_slice_of_all_logits(variant):
    model, ids = tiny(**VARIANTS[variant]), some_ids()
    full = model(ids).logits
    rows = torch.tensor([[0, 5, 23], [7, 7, 1]])
    close(model(ids, logit_rows=rows).logits, ops.gather_rows(full, rows))
    close(model(ids, columns=slice(10, 50)).logits, full[..., 10:50])
    both = model(ids, logit_rows=rows, columns=slice(10, 50)).logits
    close(both, ops.gather_rows(full, rows)[..., 10:50])


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_partial_pass_over_all_rows_is_a_full_pass(variant):
    model, ids, store = tiny(**VARIANTS[variant]), some_ids(), KVStore()
    key_mask = torch.arange(24) < torch.tensor([[24], [15]])
    model(some_ids().flip(1), key_mask=key_mask, kv=store)
    everything = torch.arange(24).expand(2, -1)
    partial = model(ids, key_mask=key_mask, kv=store, rows=everything).logits
    assert torch.equal(partial, model(ids, key_mask=key_mask).logits)


def test_logit_rows_count_within_the_computed_rows():
    model, ids, store = tiny(), some_ids(), KVStore()
    model(ids, kv=store)
    rows = torch.tensor([[3, 9, 4], [20, 0, 1]])
    partial = model(ids, kv=store, rows=rows, logit_rows=torch.tensor([[2], [0]]), columns=slice(5, 9)).logits
    full = model(ids).logits
    close(partial, torch.stack([full[0, [4], 5:9], full[1, [20], 5:9]]))


def test_rows_without_stored_keys_are_refused():
    for store in (None, KVStore()):
        with pytest.raises(ValueError, match="full pass first"):
            tiny()(some_ids(), kv=store, rows=torch.tensor([[1], [1]]))


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated")
def test_training_attention_and_checkpointing_change_nothing():
    model, ids = tiny(n_kv_heads=2), some_ids()
    key_mask = torch.arange(24) < torch.tensor([[24], [15]])
    plain, gradients = model(ids, key_mask=key_mask).logits, []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.train().zero_grad()
        with torch.enable_grad():
            logits = model(ids, key_mask=key_mask).logits
            logits.square().mean().backward()
        close(logits.detach(), plain)
        gradients.append(model.parts.blocks[0].q_proj.weight.grad.clone())
    close(*gradients)


def test_initial_weights():
    config = LLaDAConfig(
        **TINY | dict(d_model=128, n_layers=8, vocab_size=500, include_qkv_bias=True, qk_norm=True)
    )
    model = LLaDAForMultiModalGeneration(config)
    for name, weight in model.named_parameters():
        written = ".blocks." in name and name.endswith(("attn_out.weight", "ff_out.weight"))
        if name.endswith("bias"):
            assert not weight.any(), name
        elif weight.dim() == 1:
            assert (weight == 1).all(), name
        else:
            assert weight.std() == pytest.approx(0.02 / 4 if written else 0.02, rel=0.05), name
            assert abs(weight.mean()) < 1e-3, name


def test_the_hosted_model_has_eight_billion_parameters():
    count = parameter_count(LLaDAConfig())
    assert count == 8_081_805_312
    assert memory_estimate(LLaDAConfig(), torch.bfloat16) == 2 * count
    extra = memory_estimate(LLaDAConfig(), torch.bfloat16, cached_tokens=1) - 2 * count
    assert extra == 2 * 2 * 32 * 4096  # keys and values, two bytes, layers, width


# --- denoisers with known answers


def test_all_denoisers_are_called_the_same_way():
    expected = list(inspect.signature(LLaDAForMultiModalGeneration.forward).parameters)
    for model in (*MODELS.values(), AnswerDenoiser):
        assert list(inspect.signature(model.forward).parameters) == expected


def test_hashed_logits_do_not_depend_on_padding_or_neighbours():
    model, ids, lengths = HashDenoiser(60, seed=3), some_ids(3, 24), [24, 9, 1]
    key_mask = torch.arange(24) < torch.tensor(lengths).unsqueeze(1)
    together = model(ids, key_mask=key_mask).logits
    for row, length in enumerate(lengths):
        assert torch.equal(together[row, :length], model(ids[row : row + 1, :length]).logits[0])
    rows = torch.tensor([[0, 5], [7, 1], [0, 0]])
    some = model(
        ids, key_mask, rows=rows, logit_rows=torch.tensor([[1], [0], [1]]), columns=slice(9, 40)
    ).logits
    assert torch.equal(
        some, torch.stack([together[0, [5], 9:40], together[1, [7], 9:40], together[2, [0], 9:40]])
    )


def test_hashed_logits_depend_on_everything_else():
    model, ids = HashDenoiser(60, seed=3), some_ids(1)
    logits = model(ids).logits
    assert logits.shape == (1, 24, 60) and logits.min() >= 0 and logits.max() < 12
    assert torch.equal(HashDenoiser(60, seed=3)(ids).logits, logits)
    changed = ids.clone()
    changed[0, 17] += 1
    for other in (model(changed), model(ids.roll(1)), HashDenoiser(60, seed=4)(ids)):
        assert (other.logits != logits).float().mean() > 0.99
    best = logits[0].softmax(-1).max(-1).values
    assert len(best.unique()) == 24  # no two positions tie


def test_the_answer_comes_in_the_order_of_certainty():
    target = some_ids(2)
    logits = AnswerDenoiser(target, 60)(torch.full((4, 24), 3)).logits
    assert torch.equal(logits.argmax(-1), target.repeat(2, 1))
    best = logits.softmax(-1).max(-1).values
    assert torch.equal(best.argsort(-1, descending=True), torch.arange(24).expand(4, -1))
    close(best[0], torch.linspace(0.99, 0.5, 24))

    order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
    certainty = torch.empty(24).index_copy_(0, order, torch.linspace(0.9, 0.1, 24))
    part = AnswerDenoiser(target[0] % 20, 60, certainty)(target, columns=slice(0, 20)).logits
    assert torch.equal(part.softmax(-1).max(-1).values[1].argsort(descending=True), order)


def test_a_position_without_an_answer_is_undecided():
    logits = AnswerDenoiser({2: 7, 5: 9}, 60)(torch.full((1, 8), 3)).logits[0]
    assert logits[[2, 5]].argmax(-1).tolist() == [7, 9]
    assert not logits[[0, 1, 3, 4, 6, 7]].any()


@pytest.mark.parametrize(
    ("target", "certainty", "says"),
    [
        ([60], None, "vocabulary of 60"),
        ([1, 2], torch.tensor([0.5]), "2 prob"),
        ([1], torch.tensor([1.0]), "1 prob"),
    ],
)
def test_an_impossible_answer_is_refused(target, certainty, says):
    with pytest.raises(ValueError, match=says):
        AnswerDenoiser(torch.tensor(target), 60, certainty)
