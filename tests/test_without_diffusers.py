"""Supervised training on ready-made codes runs where diffusers is not installed."""

import os
import pickle
import subprocess
import sys

import pytest

from dimoo_training.pictures import open_book
from dimoo_training.recipes import SFTRecipe

RECIPE = SFTRecipe(
    shape={"d_model": 32, "n_heads": 4, "n_layers": 1, "mlp_hidden_size": 64, "rope_theta": 1000.0},
    books={"first": {"draw": 4}}, always={"draw": (2, 100), "puzzle": (1, 100)}, in_turn={}, steps=2, compile=False,
    log_every=1, workers=1,
)  # fmt: skip
RUN = """
import pickle, sys
sys.modules["diffusers"] = None                                     # importing it raises ModuleNotFoundError
from dimoo_training import commands, sft
from dimoo_training.words import build_tokenizer
sft.build_tokenizer = lambda: build_tokenizer(samples=20)
recipe, vq, out = pickle.loads(sys.stdin.buffer.read())
sft.train(recipe, vq, out, log=print)
"""


@pytest.mark.slow
def test_a_run_with_its_pictures_needs_no_diffusers(tiny_folder, tmp_path):
    open_book(tmp_path / "pictures-first.pkl", "first", RECIPE, tiny_folder / "vqvae")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    given = pickle.dumps((RECIPE, tiny_folder / "vqvae", tmp_path))
    done = subprocess.run([sys.executable, "-c", RUN], input=given, env=env, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert b"step 2 " in done.stdout
    assert (tmp_path / "checkpoint" / "vqvae" / "config.json").exists()
