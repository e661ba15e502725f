"""The embedded model: small enough, whole, and able to do what the demo shows."""

import json
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from dimoo import DiMOOPipeline
from dimoo.assets import asset
from dimoo.cli.flags import Machine
from dimoo.cli.session import load
from dimoo_training.demo import Demo
from dimoo_training.evaluation import draw_facts, evaluate
from dimoo_training.world import WORLDS

MEGABYTE = 1_000_000
LEAST = {"t2i_single": 0.8, "t2i_colors": 0.75, "qa_kind_color": 0.85, "edit_recolor_target": 0.7}
"""A floor under 24 samples of a kind: well below what was measured, far above chance."""
FLOOR = {"t2i": ("single", "colors"), "qa": ("color",), "edit": ("recolor",)}


@pytest.fixture(scope="module")
def pipeline() -> DiMOOPipeline:
    pipeline = DiMOOPipeline.from_pretrained("dimoo-tiny")
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def test_it_is_small_and_has_a_card():
    files = [path for path in asset("dimoo-tiny").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 30 * MEGABYTE
    assert "license: apache-2.0" in asset("dimoo-tiny/README.md").read_text("utf-8")


def test_saving_it_again_gives_the_same_files(tmp_path):
    DiMOOPipeline.from_pretrained("dimoo-tiny", dtype="bfloat16").save_pretrained(tmp_path)
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (asset("dimoo-tiny") / path.relative_to(tmp_path)).read_bytes(), path.name


def test_the_demo_is_right_where_it_must_be(tmp_path):
    demo = Demo(load(Machine()), tmp_path, seed=0)
    demo.run()
    verdicts = {row.asked: row.verdict for row in demo.rows}
    for asked in ("a star", "a red circle", "make the circle green", "what colour is the circle?"):
        assert verdicts[asked].right, (asked, verdicts[asked])


@pytest.mark.slow
def test_scores_have_a_floor(pipeline):
    """On the first world, which every checkpoint so far was trained on."""
    drawn = draw_facts(WORLDS["first"], seed=1, per_kind=24, parts=tuple(FLOOR))
    facts = {part: {kind: drawn[part][kind] for kind in kinds} for part, kinds in FLOOR.items()}
    scores = evaluate(pipeline, facts, seed=1, log=lambda words: None)
    assert {name: scores[name].mean for name, least in LEAST.items() if scores[name].mean < least} == {}


def test_an_editable_install_runs_from_anywhere(tmp_path):
    try:
        origin = json.loads(metadata.distribution("dimoo").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        pytest.skip("dimoo is not installed here; `make test` installs it")
    assert origin.get("dir_info", {}).get("editable"), origin
    command = shutil.which("dimoo", path=str(Path(sys.executable).parent))
    said = subprocess.run([command, "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0 and said.stdout.startswith("dimoo "), said.stderr
