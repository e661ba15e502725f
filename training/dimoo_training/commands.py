"""What `dimoo train` runs: a recipe by name, the training, and at the end a checkpoint to load."""

from __future__ import annotations

from pathlib import Path

from dimoo.assets import asset
from dimoo.resolve import resolve
from dimoo_training import sft as supervised
from dimoo_training import vq as tokenizer
from dimoo_training.evaluation.facts import PER_KIND
from dimoo_training.recipes import RECIPES
from dimoo_training.vq import VQRecipe

VQ_RECIPES = {"debug": lambda: VQRecipe(minutes=0.4, polish_minutes=0.1, codes=32), "tiny": VQRecipe}

def vq(recipe: str, out: Path) -> None:
    """Train an image tokenizer into the folder `out`. Raises ValueError for an unknown recipe."""
    chosen = resolve(recipe, VQ_RECIPES, "recipe")()
    print(f"training the image tokenizer for {chosen.minutes:g} minutes", flush=True)
    tokenizer.train(chosen, out, log=_log)
    print(f"the image tokenizer is in {out}; next: dimoo train sft --vq {out}")


def sft(recipe: str, vq_folder: Path | None, out: Path) -> None:
    """Train a model, from `out/state.pt` on when it is there; `out/checkpoint` can be loaded all along.

    Raises ValueError for an unknown recipe or a folder without an image tokenizer.
    """
    chosen = resolve(recipe, RECIPES, "recipe")()
    vq_folder = asset("dimoo-tiny/vqvae") if vq_folder is None else vq_folder
    if not (vq_folder / "config.json").is_file():
        raise ValueError(f"{vq_folder} holds no image tokenizer; make one with: dimoo train vq --out {vq_folder}")
    if (out / "state.pt").exists():
        print(f"going on with the run in {out}", flush=True)
    supervised.train(chosen, vq_folder, out, log=_log)
    print(f'trained; try: dimoo generate "a red circle" --model {out / "checkpoint"}')


def evaluate(
    model: str, per_kind: int | None, seed: int | None, parts: list[str] | None, settings: dict, out: Path | None,
    sheet: Path | None,
) -> None:  # fmt: skip
    """Score a checkpoint: on the committed facts, or for a seed on others. ValueError for an unknown part."""
    from dimoo import DiMOOPipeline
    from dimoo_training import evaluation
    from dimoo_training.world import WORLDS

    for part in parts or ():
        resolve(part, evaluation.MEASURES, "part")
    chosen = parts or list(evaluation.MEASURES)
    if seed is None:
        facts = evaluation.committed_facts(chosen, per_kind)
    else:
        facts = evaluation.draw_facts(WORLDS["full"], seed, per_kind or PER_KIND, chosen)
    pipeline = DiMOOPipeline.from_pretrained(model)
    scores = evaluation.evaluate(pipeline, facts, seed or 0, settings, _log, sheet)
    if out:
        scores.write(out)


def geneval(
    prompts: Path, images: Path, model: str, samples: int, seed: int, batch: int, clip: Path | None
) -> None:
    """Draw a GenEval prompt file into the scorer's folder layout."""
    from dimoo import DiMOOPipeline
    from dimoo_training.evaluation.geneval import clip_score, draw_folder, read_prompts

    draw_folder(DiMOOPipeline.from_pretrained(model), read_prompts(prompts), images, samples, seed, batch, _log)
    if clip:
        clip_score(images, clip, _log)


def _log(words: str) -> None:
    print(words, flush=True)
