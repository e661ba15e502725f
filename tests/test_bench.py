"""The benchmark counts right, says what it extrapolates, and goes on where it was stopped."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from dimoo.bench import measure as measuring
from dimoo.bench import suite
from dimoo.bench.count import Counted, Idle
from dimoo.bench.journal import Journal, fingerprint
from dimoo.bench.measure import Timed, count, matmul_peak, measure, measured_rows
from dimoo.bench.report import plot_cost, plot_quality, print_table
from dimoo.bench.workload import SIZES, Load, Workload
from dimoo.cache import KVStore
from dimoo.packing import Packing
from dimoo.sampling import denoise

CPU = torch.device("cpu")
KEYS = [
    "task", "preset", "model", "grid", "steps", "batch", "seconds_median", "seconds_min", "seconds_max",
    "ratio_to_plain", "forwards", "flops", "peak_memory_mb", "score",
]  # fmt: skip


@pytest.fixture(scope="module")
def workload():
    return Workload.random("1m", Load(grid=(4, 4), steps=6), CPU, torch.float32)


def product_flops(function):
    """What torch itself counts."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


PASSES = {
    "full": {},
    "asked": {"logit_rows": torch.tensor([[1, 2, 3], [4, 5, 6]]), "columns": slice(480, 512)},
    "packed": {"packing": Packing.of([20, 13], 20), "logit_rows": torch.tensor([[1, 2], [4, 5]])},
    "partial": {"rows": torch.tensor([[1, 2, 7], [4, 5, 6]]), "columns": slice(480, 512)},
}


@torch.no_grad()
@pytest.mark.parametrize("name", PASSES)
def test_flops_are_those_that_torch_counts(workload, name):
    ids, store = torch.ones(2, 20, dtype=torch.long), KVStore()
    workload.model(ids, kv=store)
    given = PASSES[name] | ({"kv": store} if name == "partial" else {})
    counted = Counted(workload.model)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # spelled out in products
        found = product_flops(lambda: counted(ids, **given))
    assert counted.flops == found and counted.forwards == 2
    positions = 33 if name == "packed" else 40
    assert (counted.positions, counted.computed) == (positions, 6 if name == "partial" else positions)


@pytest.mark.parametrize("preset", ["plain", "exact", "balanced", "fast"])
def test_a_schedule_is_counted_without_computing_it(workload, preset):
    real = Counted(workload.model)
    denoise(workload.canvas(), real, **workload.slots(preset, 6))
    idle = count(workload, preset, 6)
    assert (idle.forwards, idle.flops) == (real.forwards, real.flops)


def test_presets_use_less_of_what_the_plain_path_uses(workload):
    larger = Workload.random("1m", Load(grid=(8, 8)), CPU, torch.float32, workload.model)
    used = {preset: count(larger, preset, 64).flops for preset in suite.ALL}
    assert list(used.values()) == sorted(used.values(), reverse=True)


def test_the_plain_path_draws_what_exact_draws(workload):
    ids = []
    for preset in ("plain", "exact"):
        canvas = workload.canvas()
        denoise(canvas, workload.model, **workload.slots(preset, 6))
        ids.append(canvas.ids)
    assert torch.equal(*ids)


def test_the_head_of_random_models_weighs_what_the_hosted_one_does():
    for size in ("100m", "8b"):
        config = SIZES[size]()
        layers = config.n_layers * (4 * config.d_model + 3 * config.mlp_hidden_size)
        assert 0.05 < config.embedding_rows / (layers + config.embedding_rows) < 0.08
        assert (config.head_dim, config.mlp_hidden_size / config.d_model) == (128, 3)
    small = SIZES["100m"]()
    assert 0.9e8 < small.d_model**2 * 13 * small.n_layers < 1.1e8


def test_rows_have_the_promised_keys_first_and_say_what_was_scaled(workload):
    made = measured_rows(workload, ["plain", "exact"], 2, {"plain": 2}, 1e9, log=lambda words: None)
    assert [list(row)[: len(KEYS)] for row in made] == [KEYS] * 2
    plain, exact = made
    assert (plain["measured_steps"], exact["measured_steps"], exact["repeats"]) == (2, 6, 2)
    assert plain["ratio_to_plain"] == 1 and exact["ratio_to_plain"] > 0 and exact["peak_memory_mb"] > 1
    assert plain["flops"] == count(workload, "plain", 6).flops and plain["forwards"] == 12
    said = []
    print_table(made, said.append)
    assert "~" in said[2] and "~" not in said[3]


def test_fewer_steps_are_scaled_by_flops():
    one = Timed("plain", 2, scale=3.0, forwards=12)
    for seconds in (2.0, 3.0):
        one.add({"seconds": seconds, "memory": 5.0 - seconds, "forwards": 4, "flops": 10})
    assert (one.full(), one.flops, one.forwards, one.memory) == ([6.0, 9.0], 30, 12, 3.0)


def test_what_is_known_so_far_is_handed_over_after_each_run(workload):
    states = measure(workload, ["exact", "fast"], 2, {}, lambda words: None)
    seen = [[len(one.seconds) for one in timed] for timed in states]
    assert seen == [[1], [1, 1], [2, 1], [2, 2]]


def test_a_measurement_that_was_stopped_goes_on(workload, tmp_path, monkeypatch):
    done, real = [], measuring.once

    def once(workload, one):
        done.append(one.preset)
        if len(done) == 3:
            raise KeyboardInterrupt
        return real(workload, one)

    monkeypatch.setattr(measuring, "once", once)
    given = (workload, ["plain", "exact"], 2, {}, 1e9)
    with pytest.raises(KeyboardInterrupt):
        measured_rows(*given, log=lambda _: None, journal=Journal(tmp_path / "x.jsonl", "now"))
    made = measured_rows(*given, log=lambda _: None, journal=Journal(tmp_path / "x.jsonl", "now"))
    assert done == ["plain", "exact", "plain", "plain", "exact"] and [row["repeats"] for row in made] == [2, 2]


def test_a_journal_keeps_what_it_can(tmp_path):
    path = tmp_path / "new" / "journal.jsonl"
    journal = Journal(path, "one")
    assert [journal.remember(key, lambda: [1, 2]) for key in ("a", "a", "b")] == [[1, 2]] * 3
    path.write_text(path.read_text() + '\n{"key": "c", "val')
    again = Journal(path, "one")
    assert again.remember("d", lambda: 4) == 4
    assert Journal(path, "one").known == {"a": [1, 2], "b": [1, 2], "d": 4}
    assert not Journal(path, "another").known and not path.exists()
    again.forget()
    assert not path.exists() and Journal().remember("a", lambda: 1) == 1


def test_a_fingerprint_changes_with_what_is_hashed(tmp_path):
    (tmp_path / "a.py").write_text("1")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "a.py").write_text("2")
    assert fingerprint(tmp_path) != before


def test_the_peak_is_one():
    assert matmul_peak(CPU, torch.float32, rounds=1) > 1e8


SCORED = {"score": 0.8, "score_low": 0.7, "score_high": 0.9, "model": "m", "task": "generate", "steps": 4}


def test_plots_are_pictures(tmp_path):
    quality = [SCORED | {"preset": name, "seconds_median": s} for name, s in (("exact", 2.0), ("fast", 0.5))]
    plot_quality(quality, tmp_path / "quality.png")
    cost = [
        {"grid": grid, "batch": batch, "seconds_median": seconds, "steps": 2, "flops": 10 * seconds}
        for grid, batch, seconds in (("4x4", 1, 1.0), ("8x8", 1, 5.0), ("4x4", 2, 2.0))
    ]
    plot_cost(cost, tmp_path / "cost.png")
    assert {path.name for path in tmp_path.iterdir()} == {"quality.png", "cost.png"}
    assert all(min(Image.open(path).size) > 300 for path in tmp_path.iterdir())


def test_the_suite_writes_what_it_promises_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    words = ["--small", "--part", "policies", "scaling", "--out", str(tmp_path), "--journal", str(tmp_path / "journal")]
    ran = []

    def stopped(one):
        ran.append("scaling")
        raise KeyboardInterrupt

    monkeypatch.setitem(suite.PARTS, "scaling", stopped)
    with pytest.raises(KeyboardInterrupt):
        suite.main(words)
    names = [row["preset"] for row in json.loads((tmp_path / "policies.json").read_text())]
    assert names[0] == "exact" and {"interval", "adaptive", "fast+interval"} <= set(names)
    for part in ("policies", "scaling"):
        monkeypatch.setitem(suite.PARTS, part, lambda one, part=part: ran.append(part))
    suite.main(words)
    assert ran == ["scaling", "scaling"] and not list((tmp_path / "journal").iterdir())
    suite.main(words)
    assert ran[2:] == ["policies", "scaling"]


def test_bench_prints_a_table_and_writes_json(cli):
    words = ("bench", "--random", "1m", "--grid", "4x4", "--steps", 3, "--repeats", 1, "--presets", "exact,fast")
    shown = cli(*words, "--json", "x.json")
    assert "random-1m, generate, grid 4x4, 3 steps" in shown.stdout and "fast" in shown.stdout
    made = json.loads(Path("x.json").read_text())
    assert [row["preset"] for row in made] == ["plain", "exact", "fast"]
    assert set(KEYS) <= set(made[0]) and not list(Path().glob("*.part"))


@pytest.mark.parametrize("task", ["generate", "edit", "ask"])
def test_bench_of_a_checkpoint(cli, tiny_folder, task):
    words = ("--task", task, "--grid", "4x4", "--steps", 2, "--repeats", 1, "--presets", "exact")
    assert f"{task}, grid 4x4, 2 steps" in cli("bench", "--model", tiny_folder, *words).stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--task", "draw"), "unknown task 'draw'"),
        (("--grid", "4"), "--grid is ROWSxCOLUMNS"),
        (("--presets", "fats"), "did you mean 'fast'"),
        (("--repeats", 0), "--repeats must be at least 1"),
        (("--steps", 0), "steps must be at least 1"),
        (("--random", "9m"), "there is: 100m, 1m, 8b"),
        (("--random", "1m", "--score", 3), "random weights draw nothing"),
        (("--plot", "x.png"), "needs --score"),
    ],
)
def test_wrong_words_are_named(cli, words, says):
    assert says in " ".join(cli("bench", *words, code=2).stderr.split())


def test_idle_answers_have_the_shape_of_real_ones(workload):
    idle, ids = Idle(workload.model), torch.ones(2, 20, dtype=torch.long)
    for given in PASSES.values():
        shape = idle(ids, **given).logits.shape
        if "rows" not in given:
            assert shape == workload.model(ids, **given).logits.shape
