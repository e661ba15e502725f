"""What `dimoo train self-grpo`, `grpo` and `dpo` run: a recipe by name on a checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch

from dimoo import DiMOOPipeline
from dimoo.resolve import resolve
from dimoo_training.rl.recipes import RECIPES
from dimoo_training.rl.rehearsal import Rehearsal
from dimoo_training.rl.train import align


def run(command: str, recipe: str, model: str, out: Path) -> None:
    """Align `model`, from `out/state.pt` on when it is there; `out/checkpoint` can be loaded all along.

    Raises ValueError for an unknown recipe and a model that cannot be loaded.
    """
    chosen = resolve(recipe, RECIPES[command], "recipe")()
    pipeline = DiMOOPipeline.from_pretrained(model, dtype=getattr(torch, chosen.dtype))
    supervised = Rehearsal.of(pipeline, out, seed=chosen.seed) if chosen.sft_share or chosen.rule == "sft" else None
    if (out / "state.pt").exists() or any(out.glob("state-*")):
        print(f"going on with the run in {out}", flush=True)
    align(pipeline, chosen, out, supervised, lambda words: print(words, flush=True))
    print(f"aligned; log, curves and sheets are in {out}; score it: dimoo eval --model {out / 'checkpoint'}")
