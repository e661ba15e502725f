"""The model of a supervised run as it is at some step, kept while the run goes on."""

from __future__ import annotations

import json
from pathlib import Path

from dimoo.model.config import LLaDAConfig
from dimoo.model.load import read_config
from dimoo_training.finetune import write_checkpoint
from dimoo_training.run_state import Run, averaged
from dimoo_training.state import load_state

NOTE = "snapshot.json"


def snapshot(run: Path, out: Path) -> int:
    """Write out/checkpoint with the averaged weights of the last state in `run`, which may be in work; its step.

    out/snapshot.json names that step: the same recipe with `until` at it makes the same weights from nothing.
    Raises ValueError for a folder without a state.
    """
    path = run / Run.FILE
    if not path.is_file():
        raise ValueError(f"{run} holds no run: there is no {Run.FILE}")
    state, start = load_state(path), run / "checkpoint"
    weights = averaged(state["model"], state["ema"])
    out.mkdir(parents=True, exist_ok=True)
    write_checkpoint(start, read_config(start, LLaDAConfig), weights, out / "checkpoint")
    (out / NOTE).write_text(json.dumps({"run": str(run), "step": state["step"]}) + "\n")
    return state["step"]
