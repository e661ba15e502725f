"""`dimoo inspect`, `doctor` and `train`, and the extras they name."""

import json
import re
import sys
from pathlib import Path

import pytest
from PIL import Image

from dimoo.cli.extras import EXTRAS, install, missing, reach
from dimoo.images import read_parameters

ROOT = Path(__file__).parents[1]


def test_inspect_shows_parameters_for_people_and_programs(cli):
    cli("generate", "a red star", "--seed", 4, "--out", "x.png")
    shown = cli("inspect", "x.png").stdout
    assert re.search(r"prompt +a red star", shown) and re.search(r"seed +4", shown)
    assert json.loads(cli("inspect", "x.png", "--json").stdout) == read_parameters("x.png")


def test_inspect_describes_a_checkpoint(cli, tiny_folder):
    told = json.loads(cli("inspect", tiny_folder, "--json").stdout)
    assert (told["n_layers"], told["pixels_per_code"], told["default height"]) == (2, 8, 32)
    assert "thousand parameters" in told["size"]


def test_doctor_says_what_fits_without_loading(cli, tiny_folder, monkeypatch):
    from dimoo.cli import health

    small = health.Device("cpu", "a small one", 8 * 2**30, 8 * 2**30, ("float32",))
    monkeypatch.setattr(health, "devices", lambda: [small])
    monkeypatch.setattr("dimoo.pipeline.DiMOOPipeline.from_pretrained", None)
    monkeypatch.setenv("COLUMNS", "200")
    shown = cli("doctor", "--model", tiny_folder).stdout
    assert all(extra in shown and (install(extra) in shown) is bool(missing(extra)) for extra in EXTRAS)
    mine, _, hosted = shown.partition("Lumina-DiMOO: 8.08 billion parameters")
    assert "does not fit" not in mine and "15.1 GiB" in hosted and hosted.count("does not fit") == 2


def test_extras_are_those_of_the_project():
    if sys.version_info < (3, 11):
        pytest.skip("needs tomllib")
    import tomllib

    stated = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    names = {"open-clip-torch": "open_clip"}
    bare = {extra: tuple(re.match(r"[\w-]+", need)[0] for need in needs) for extra, needs in stated.items()}
    assert {extra: modules for extra, (_, modules) in EXTRAS.items()} == {
        extra: tuple(names.get(need, need.replace("-", "_")) for need in needs)
        for extra, needs in bare.items()
        if extra != "dev"
    }


RECIPES = """
from dataclasses import replace

from dimoo_training.recipes import VQRecipe, debug

def quick():
    small = {"books": {"first": {"draw": 6, "style": 3}}, "always": {"draw": (2, 100), "answer": (1, 184)}}
    return replace(debug(), **small, in_turn={"style": (1, 232)}, steps=1, log_every=1)

def blink():
    return VQRecipe(minutes=0.001, batch=4, codes=32)
"""


@pytest.fixture
def recipes(tmp_path, monkeypatch):
    from dimoo_training.words import build_tokenizer

    monkeypatch.setattr("dimoo_training.sft.build_tokenizer", lambda: build_tokenizer(samples=50))
    (tmp_path / "mine.py").write_text(RECIPES)


def test_train_the_image_tokenizer(cli, recipes):
    assert "dimoo train sft --vq vq" in cli("train", "vq", "--recipe", "mine.py:blink", "--out", "vq").stdout
    assert Path("vq/config.json").is_file()


def test_train_the_model_draw_with_it_and_go_on(cli, recipes, tiny_folder):
    words = ("train", "sft", "--recipe", "mine.py:quick", "--vq", tiny_folder / "vqvae", "--out", "run")
    assert "try: dimoo generate" in cli(*words).stdout
    cli("generate", "a red circle", "--model", "run/checkpoint", "--steps", 2, "--out", "x.png")
    assert Image.open("x.png").size == (64, 64)
    assert "going on with the run in run" in cli(*words).stdout
    assert [line["step"] for line in map(json.loads, Path("run/log.jsonl").read_text().splitlines())] == [1]
    cli(*words, "--steps", 2)
    assert [line["step"] for line in map(json.loads, Path("run/log.jsonl").read_text().splitlines())] == [1, 2]


def test_what_an_extra_would_bring_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dimoo_training", None)
    monkeypatch.delitem(sys.modules, "dimoo_training.commands", raising=False)
    with pytest.raises(ValueError, match=r"needs the extra \[train\].*pip install 'dimoo\[train\]'"):
        reach("dimoo_training.commands:vq", "train")
