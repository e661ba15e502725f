"""`make gpu-check` runs where diffusers and gradio are not, and no failure costs what was found before it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dimoo.bench import gpu, gpu_stages, kernels

ROOT = Path(__file__).parents[1]
BLOCKED = (
    "diffusers", "gradio", "accelerate", "PIL", "typer", "rich", "psutil", "matplotlib", "ray", "fastapi", "openai",
    "tokenizers_vq", "dimoo_app", "dimoo_training",
)  # fmt: skip
PROBE = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED}))  # as if they were not installed, also to who only looks
from dimoo.bench.gpu_stages import main
out, *stages = sys.argv[1:]
for stage in stages:
    main([stage, "--small", "--json", f"{{out}}/{{stage}}.json"])
"""


def test_the_stages_run_without_what_such_a_machine_lacks(tmp_path):
    path = os.pathsep.join(str(ROOT / part) for part in ("", "kernels"))
    alone = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    env = {**os.environ, **alone, "PYTHONPATH": path}
    command = [sys.executable, "-c", PROBE, tmp_path, *gpu.SHARES]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = {stage: json.loads((tmp_path / f"{stage}.json").read_text()) for stage in gpu.SHARES}
    assert not [words for one in found.values() for words in one["failed"] + one["skipped"]]
    assert {row["preset"] for row in found["draw"]["rows"]} == set(gpu_stages.PRESETS)
    assert found["draw"]["never_waits"] == list(gpu_stages.WAITING)
    assert len(found["parity"]["parity"]) == 2 * len(gpu_stages.TOLERANCE) * len(kernels.names())
    assert all(row["us"] > 0 for row in found["bandwidth"]["kernels"])
    assert len(found["bandwidth"]["kernels"]) == 2 * len(kernels.names())


def check(tmp_path, seconds=100.0, skip=()):
    return gpu_stages.Check(tmp_path / "x.json", seconds, True, skip)


def stored(tmp_path):
    return json.loads((tmp_path / "x.json").read_text())


def test_a_kernel_that_is_off_or_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    def parity(name, device, dtype, shape):
        if name == "swiglu":
            raise RuntimeError("no such instruction\nat line 3")
        return 0.5 if (name, dtype) == ("rms_norm", torch.float32) else 0.0

    monkeypatch.setattr(gpu_stages.kernels, "parity", parity)
    gpu_stages.parity(check(tmp_path))
    found = stored(tmp_path)
    assert "rms_norm awkward float32: differs by 5.00e-01, more than 1e-04" in found["failed"]
    assert "swiglu hosted bfloat16: RuntimeError: no such instruction" in found["failed"]
    assert len(found["failed"]) == 6 and len(found["parity"]) == 4 * (len(kernels.names()) - 1)


def test_a_preset_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    real = gpu_stages.once

    def once(workload, one):
        if one.preset == "published":
            raise torch.OutOfMemoryError("no memory left")
        return real(workload, one)

    monkeypatch.setattr(gpu_stages, "once", once)
    monkeypatch.setattr(gpu_stages, "waiting", lambda check: None)
    gpu_stages.draw(check(tmp_path, skip=["balanced"]))
    found = stored(tmp_path)
    assert found["failed"] == ["published: OutOfMemoryError: no memory left"]
    assert {row["preset"]: row["repeats"] for row in found["rows"]} == {"exact": 3, "fast": 3, "plain": 3}


def test_what_there_is_no_time_for_is_left_out_and_said(tmp_path):
    gpu_stages.bandwidth(check(tmp_path, seconds=0))
    assert stored(tmp_path)["skipped"] == [f"{name} {way}" for name in kernels.names() for way in ("fused", "plain")]


@pytest.fixture
def stages(monkeypatch):
    """Stages that only pretend, by a clock of their own: parity spoils its process once, bandwidth hangs."""
    now, told = [0.0], []

    def run(command, env, timeout):
        stage, path = command[3], Path(command[command.index("--json") + 1])
        skip = command[command.index("--skip") + 1 :]
        new = [name for name in ("a", "b") if name not in skip][:1]
        told.append((stage, int(command[command.index("--seconds") + 1]), env.get("DIMOO_KERNELS")))
        found = {"gpu": "Fake GPU 9", "failed": [], "skipped": [], "tried": [*skip, *new, stage], "kernels": new}
        path.write_text(json.dumps(found))
        now[0] += timeout if stage == "bandwidth" else 30
        if stage == "bandwidth":
            raise subprocess.TimeoutExpired(command, timeout)
        return SimpleNamespace(returncode=gpu_stages.POISONED if stage == "parity" and new == ["a"] else 0)

    monkeypatch.delenv("DIMOO_KERNELS", raising=False)
    monkeypatch.setattr(gpu.subprocess, "run", run)
    monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return told


def report(tmp_path):
    (found,) = json.loads((tmp_path / "gpu-fake-gpu-9.json").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["gpu-fake-gpu-9.json"]
    return found


def test_whatever_happens_to_a_stage_the_report_has_the_rest(stages, tmp_path):
    assert gpu.main(["--out", str(tmp_path), "--small"]) == 1
    found = report(tmp_path)
    assert found["failed"] == ["parity: ended with code 3", "bandwidth: ended after 75 s"]
    assert found["kernels"] == ["a", "b", "a", "a", "a"]  # parity went on behind what had spoiled it
    assert found["seconds"] == {"parity": 60, "draw": 30, "bandwidth": 75, "compiled": 30}
    off = "off"  # the kernels may be at fault, so the model is measured without them
    assert stages == [
        ("parity", 110, None), ("parity", 80, None), ("draw", 250, off), ("bandwidth", 60, off), ("compiled", 110, off),
    ]  # fmt: skip


def test_all_of_it_ends_in_time(stages, tmp_path):
    assert gpu.main(["--out", str(tmp_path), "--stage", "bandwidth", "draw", "--seconds", "60"]) == 1
    found = report(tmp_path)
    assert found["skipped"] == ["draw: all of it"] and found["total_seconds"] <= 60
    assert stages == [("bandwidth", 45, None)]


def test_kernels_of_training_may_fail_without_drawing_being_slowed(stages, tmp_path, monkeypatch):
    words = ["parity: chosen_log_prob awkward float32: differs"]
    monkeypatch.setattr(gpu, "merge", lambda report, stage, found: report.update(gpu="Fake GPU 9", failed=words))
    gpu.main(["--out", str(tmp_path), "--stage", "parity", "draw"])
    assert stages[-1] == ("draw", 250, None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_written(tmp_path, capfd):
    assert gpu.main(["--out", str(tmp_path), "--stage", "parity"]) == 1
    assert "needs an NVIDIA GPU" in capfd.readouterr().err and not list(tmp_path.iterdir())
