"""`dimoo studio` and `dimoo serve`: what they refuse before they load a model, and whole runs."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("gradio", reason="needs the extra [app]")

from dimoo_app import bench


@pytest.fixture
def processes(monkeypatch):
    """Processes find the packages where this one does."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.mark.parametrize("command", ["studio", "serve"])
def test_logins_are_pairs(cli, command):
    result = cli(command, "--auth", "nobody", "--model", "missing/", code=2)
    assert "--auth is USER:PASSWORD, got 'nobody'" in result.output


def test_a_public_address_needs_a_login(cli):
    assert "give --auth USER:PASSWORD" in cli("studio", "--share", "--model", "missing/", code=2).output


def test_limits_are_checked_before_the_model_is_loaded(cli):
    assert "at least 1" in cli("serve", "--max-batch", "0", "--model", "missing/", code=2).output


def test_help_names_what_is_served(cli):
    assert "/v1/chat/completions" in cli("serve", "--help").output


@pytest.mark.slow
def test_a_stopped_server_finishes_what_it_has_taken(tiny_folder, processes):
    openai = pytest.importorskip("openai", reason="needs the extra [dev]")
    flags = ("--model", str(tiny_folder), "--max-batch", "2", "--grace", "300")
    with bench.server("serve", *flags) as (address, process), ThreadPoolExecutor(8) as pool:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0, timeout=300)
        ask = {"prompt": "a star", "size": "128x128", "extra_body": {"steps": 100}}    # seconds, so that some wait
        asked = [pool.submit(client.images.generate, **ask) for _ in range(8)]
        end = time.monotonic() + 120
        while _taken(address) < 7:                          # the first may be done by now
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert all(one.result().data for one in asked)
        assert process.wait(60) in (0, -signal.SIGTERM)


def _taken(address: str) -> int:
    """Samples that wait or are computed."""
    with urllib.request.urlopen(f"{address}/healthz", timeout=60) as answer:
        state = json.load(answer)
    return state["waiting"] + state["running"]


@pytest.mark.slow
def test_the_benchmark_measures_whole_servers(tiny_folder, tmp_path, processes):
    pytest.importorskip("openai", reason="needs the extra [dev]")
    words = ["--requests", "6", "--clients", "3", "--repeats", "1", "--out", str(tmp_path / "made" / "studio.json")]
    bench.main(["--model", str(tiny_folder), *words])
    (row,) = json.loads((tmp_path / "made" / "studio.json").read_text())
    assert 0 < row["page_seconds"] < row["first_picture_seconds"]
    assert row["picture_16_steps_seconds"] > 0 and row["batching_ratio_min"] == row["batching_ratio"] > 0
