"""The recorded traces of the reference replay exactly, and the replay notices when they do not."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

GOLDEN = Path(__file__).parent / "golden"


def replay(folder, capsys, monkeypatch):
    """(exit code, printed lines) of the script."""
    monkeypatch.setattr(sys, "argv", ["replay.py", str(folder)])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(GOLDEN / "replay.py"), run_name="__main__")
    return stop.value.code, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("family", ["mha", "gqa"])
def test_every_case_replays(family, capsys, monkeypatch):
    code, lines = replay(GOLDEN / family, capsys, monkeypatch)
    assert code == 0, lines
    cases = list(json.loads((GOLDEN / family / "meta.json").read_text())["cases"])
    text = GOLDEN / family / "text_meta.json"
    cases += list(json.loads(text.read_text())) if text.exists() else []
    assert [line.split()[1] for line in lines if line.startswith("ok")] == cases
    assert len(lines) == len(cases)


CORRUPTIONS = {
    "t2i0.step_inputs": "ids of step 3: 1 of 33 differ",
    "t2i3.vq_ids": "vq_ids: 1 of 30 differ",
    "i2i0.step_inputs": "ids of step 3: 1 of 44 differ",
    "mmu1.output_ids": "output_ids: 1 of 41 differ",
    "t2i3.uncond_recompute_mask.4": "uncond_recompute_mask.4: 1 of 45 differ",
    "cache.recompute_mask": "recompute_mask: 1 of 37 differ",
    "cache.second_logits": "second_logits: off by up to",
    "forward.logits": "logits: off by up to",
}


def corrupt(value):
    """One id, bit or logit of a recorded tensor, at its fourth row where it has so many."""
    flat = value[3 if len(value) > 3 else 0].flatten().clone()
    flat[-1] = ~flat[-1] if value.dtype == torch.bool else flat[-1] + 1
    value[3 if len(value) > 3 else 0] = flat.view(value.shape[1:])


def test_any_difference_is_found_and_named(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "mha"
    shutil.copytree(GOLDEN / "mha", folder)
    traces = load_file(folder / "traces.safetensors")
    for key in CORRUPTIONS:
        corrupt(traces[key])
    save_file(traces, folder / "traces.safetensors")
    code, lines = replay(folder, capsys, monkeypatch)
    assert code == 1
    for key, words in CORRUPTIONS.items():
        case = next(line for line in lines if line.split()[1] == key.partition(".")[0])
        assert case.startswith("FAIL") and words in case
    spared = {"t2i1", "t2i2", "i2i1", "inpaint", "mmu0", "mmu2", *json.loads((folder / "text_meta.json").read_text())}
    assert {line.split()[1] for line in lines if line.startswith("ok")} == spared


TEXT_CORRUPTIONS = {
    "full1.output_ids": "output_ids: 1 of 43 differ",
    "dual_cache2.output_ids": "output_ids: 1 of 43 differ",
    "credit.ids_after": "ids after step 3: 1 of 24 differ",
    "select2.hierarchy_0.9_0.4.positions": "select2.hierarchy_0.9_0.4.positions: 1 of 48 differ",
}


def test_differences_of_text_are_found_and_named(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "mha"
    shutil.copytree(GOLDEN / "mha", folder)
    traces = load_file(folder / "text_traces.safetensors")
    for key in TEXT_CORRUPTIONS:
        corrupt(traces[key])
    save_file(traces, folder / "text_traces.safetensors")
    meta = json.loads((folder / "text_meta.json").read_text())
    meta["prefix_cache0"]["forward_calls"] = 7
    (folder / "text_meta.json").write_text(json.dumps(meta))
    code, lines = replay(folder, capsys, monkeypatch)
    failed = [line for line in lines if line.startswith("FAIL")]
    wanted = {key.partition(".")[0]: words for key, words in TEXT_CORRUPTIONS.items()}
    wanted["select"] = wanted.pop("select2")
    wanted["prefix_cache0"] = "8 forwards instead of at most 7"
    assert code == 1 and {line.split()[1] for line in failed} == set(wanted)
    assert all(wanted[line.split()[1]] in line for line in failed)


CHANGES = {
    "another mask id": lambda meta: meta["special_token_ids"].update(mask=10),
    "another scale": lambda meta: meta["cases"]["t2i0"].update(guidance_scale=2.5),
    "another number of steps": lambda meta: meta["cases"]["mmu0"].update(steps=4),
    "an unknown task": lambda meta: meta["cases"]["t2i0"].update(task="video"),
    "a case without tensors": lambda meta: meta["cases"].update(extra={"task": "understanding"}),
    "no cases": lambda meta: meta["cases"].clear(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_settings_do_not_pass(name, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "gqa"
    shutil.copytree(GOLDEN / "gqa", folder)
    meta = json.loads((folder / "meta.json").read_text())
    CHANGES[name](meta)
    (folder / "meta.json").write_text(json.dumps(meta))
    code, lines = replay(folder, capsys, monkeypatch)
    assert code == 1, lines
