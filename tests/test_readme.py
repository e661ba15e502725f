"""The README and the page about decoding run: commands, Python blocks; and the loop that is quoted is the loop."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from dimoo.blocks import BLOCKS as WINDOWS
from dimoo.cache import CACHES
from dimoo.sampling import (
    CONFIDENCES,
    EDITINGS,
    PROCESSORS,
    QUOTAS,
    REJECTIONS,
    REMASKINGS,
    RULES,
    SMOOTHINGS,
)
from dimoo.settings import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
DECODING = (ROOT / "docs" / "decoding.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", f"{README}\n{DECODING}", re.S | re.M)
COMMANDS = re.findall(r"`(dimoo (?:generate|edit|inpaint|ask) [^`]+)`", README + DECODING)
TRAINING = re.findall(r"^    (dimoo train .+)$", README, re.M)
REQUESTS = re.findall(r"^```json\n(.*?)^```", README, re.S | re.M)
BATCH = re.findall(r"^    (dimoo batch .+)$", README, re.M)
CLIENTS = re.findall(r"^```py\n(.*?)^```", README, re.S | re.M)
SERVE = re.findall(r"^    (dimoo serve .+)$", README, re.M)
LOOP = "dimoo/sampling/loop.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with the files the README talks about."""
    place = tmp_path_factory.mktemp("readme")
    run(["generate", "a red circle", "--seed", "0", "--out", "circle.png"], place)
    mask = Image.new("L", Image.open(place / "circle.png").size, 0)
    mask.paste(255, (16, 16, 32, 32))
    mask.save(place / "mask.png")
    (place / "mine.py").write_text(next(block for block in BLOCKS if "class Mine" in block).partition("\npipeline.")[0])
    return place


def run(arguments: list[str], folder: Path) -> str:
    """`dimoo ARGUMENTS` in a folder; its output."""
    command = [sys.executable, "-m", "dimoo", *arguments]
    path = os.pathsep.join(str(ROOT / part) for part in ("", "kernels", "app", "training"))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), scope)
    assert scope["picture"].size == (64, 64)


@pytest.mark.parametrize("command", [c for c in COMMANDS if "--from" not in c])
def test_commands_run(command: str, folder: Path) -> None:
    run(shlex.split(command)[1:], folder)


def test_repeating_a_picture(folder: Path) -> None:
    run(["generate", "--from", "circle.png", "--out", "again.png"], folder)
    assert Image.open(folder / "again.png").tobytes() == Image.open(folder / "circle.png").tobytes()


def test_bench_commands_run(folder: Path) -> None:
    commands = re.findall(r"^    (dimoo bench .+)$", README, re.M)
    assert commands
    for command in commands:
        assert "published" in run(shlex.split(command)[1:], folder)


def test_the_batch_runs(folder: Path) -> None:
    (requests,), (command,) = REQUESTS, BATCH
    (folder / "requests.jsonl").write_text(requests)
    run(shlex.split(command)[1:], folder)
    assert len((folder / "out/batch/manifest.jsonl").read_text().splitlines()) == len(requests.splitlines())
    assert not (folder / "out/batch/failures.jsonl").read_text()


@pytest.mark.slow
def test_the_client_talks_to_the_server(serve, capsys) -> None:
    pytest.importorskip("openai", reason="needs the extra [dev]")
    from dimoo import DiMOOPipeline

    (command,), (code,) = SERVE, CLIENTS
    words = shlex.split(command)
    key, port = words[words.index("--api-key") + 1], words[words.index("--port") + 1]
    pipeline = DiMOOPipeline.from_pretrained("dimoo-tiny")
    pipeline.set_progress_bar_config(disable=True)
    place = serve(pipeline, model="dimoo-tiny", keys=(key,))
    scope: dict = {}
    exec(code.replace(f"http://127.0.0.1:{port}", place.address), scope)
    scope["client"].close()
    assert scope["made"].data[0].b64_json and capsys.readouterr().out


@pytest.mark.slow
def test_training_commands_run(folder: Path) -> None:
    assert len(TRAINING) == 5
    item = {"task": "text_to_image", "prompt": "a red circle", "image": "circle.png"}
    (folder / "data.jsonl").write_text(json.dumps(item) + "\n")
    for command in TRAINING:
        run(shlex.split(command)[1:], folder)
    run(["generate", "a star", "--model", "runs/tuned/checkpoint", "--seed", "0"], folder)


def test_the_quoted_loop_is_the_loop() -> None:
    quoted = re.search(rf"`{LOOP}`\):\n\n```\n(.*?)^```", README, re.S | re.M)
    assert quoted, f"README.md quotes no lines of {LOOP}"
    assert quoted[1] in (ROOT / LOOP).read_text("utf-8")


TABLES = (RULES, QUOTAS, WINDOWS, CONFIDENCES, PROCESSORS, REJECTIONS, REMASKINGS, EDITINGS, SMOOTHINGS, CACHES)


def test_the_page_about_decoding_names_every_variant() -> None:
    assert not [name for table in TABLES for name in table if f"`{name}`" not in DECODING]
    assert all(getattr(Settings(), slot, "") is None for slot in re.findall(r"^\| `(\w+)`", DECODING, re.M))


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert link.startswith("http") or (ROOT / link).exists()
