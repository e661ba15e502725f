"""What `dimoo train` and `dimoo eval` run. Each imports what it needs: supervised training works without diffusers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dimoo.assets import asset
from dimoo.resolve import resolve
from dimoo_training.recipes import FINE_TUNES, RECIPES, VQ_RECIPES


def vq(recipe: str, out: Path) -> None:
    """Train an image tokenizer into the folder `out`. Raises ValueError for an unknown recipe."""
    from dimoo_training import vq as tokenizer

    chosen = resolve(recipe, VQ_RECIPES, "recipe")()
    print(f"training the image tokenizer for {chosen.minutes:g} minutes", flush=True)
    tokenizer.train(chosen, out, log=_log)
    print(f"the image tokenizer is in {out}; next: dimoo eval tokenizer --vq {out}, dimoo train sft --vq {out}")


def _sft_recipe(name: str, steps: int | None):
    recipe = resolve(name, RECIPES, "recipe")()
    return replace(recipe, steps=steps) if steps else recipe


def _vq_folder(vq_folder: Path | None) -> Path:
    folder = asset("dimoo-tiny/vqvae") if vq_folder is None else vq_folder
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} holds no image tokenizer; make one with: dimoo train vq --out {folder}")
    return folder


def pictures(recipe: str, vq_folder: Path | None, out: Path) -> None:
    """Make the pictures of a supervised run and their codes, so that it can start elsewhere."""
    from dimoo_training.pictures import open_book

    chosen = _sft_recipe(recipe, None)
    for name in chosen.books:
        path = out / f"pictures-{name}.pkl"
        book = open_book(path, name, chosen, _vq_folder(vq_folder))
        print(f"{path}: {len(book.pictures)} pictures, {path.stat().st_size / 1e6:.0f} MB", flush=True)


def sft(recipe: str, vq_folder: Path | None, out: Path, steps: int | None = None) -> None:
    """Train a model, from the state in `out` on when it is there; `out/checkpoint` can be loaded all along.

    Raises ValueError for an unknown recipe or a folder without an image tokenizer.
    """
    from dimoo_training import sft as supervised

    chosen, folder = _sft_recipe(recipe, steps), _vq_folder(vq_folder)
    if (out / "state.pt").exists():
        print(f"going on with the run in {out}", flush=True)
    supervised.train(chosen, folder, out, log=_log)
    print(f'trained; try: dimoo generate "a red circle" --model {out / "checkpoint"}')


def snapshot(run: Path, out: Path) -> None:
    """Keep the model of a supervised run as it is now."""
    from dimoo_training.snapshot import snapshot

    step = snapshot(run, out)
    print(f"step {step} of {run} is in {out / 'checkpoint'}; score it: dimoo eval --model {out / 'checkpoint'}")


def tokenise(data: Path, model: str, out: Path, seed: int) -> None:
    """Pre-tokenise a JSONL file of pictures and texts for `finetune`."""
    from dimoo import DiMOOPipeline
    from dimoo_training import hosted_data

    if not data.is_file():
        raise ValueError(f"no file {data}")
    kept, bad = hosted_data.tokenise(data, DiMOOPipeline.from_pretrained(model), out, seed, _log)
    print(f"{kept} records in {out}, {bad} bad lines" + (f" (named in {out}/part-*.bad)" if bad else ""))


def finetune(model: str, data: Path, recipe: str, out: Path, steps: int | None) -> None:
    """Fine-tune a checkpoint on pre-tokenised data, from the state in `out` on when it is there."""
    from dimoo_training import finetune as tuning

    chosen = resolve(recipe, FINE_TUNES, "recipe")()
    tuning.finetune(model, data, replace(chosen, steps=steps) if steps else chosen, out, _log)
    print(f'trained; try: dimoo generate "a red circle" --model {out / "checkpoint"}')


def evaluate(
    model: str, per_kind: int | None, seed: int | None, world: str, parts: list[str] | None, settings: dict,
    preset: str, out: Path | None, sheet: Path | None,
) -> None:  # fmt: skip
    """Score a checkpoint: on the committed facts, or for a seed or another world on others.

    Raises ValueError for an unknown part or world.
    """
    from dimoo import DiMOOPipeline
    from dimoo_training import evaluation
    from dimoo_training.evaluation.facts import PER_KIND
    from dimoo_training.world import WORLDS

    for part in parts or ():
        resolve(part, evaluation.MEASURES, "part")
    chosen = parts or list(evaluation.MEASURES)
    shown = resolve(world, WORLDS, "world")
    if seed is None and shown is WORLDS["full"]:
        facts = evaluation.committed_facts(chosen, per_kind)
    else:
        facts = evaluation.draw_facts(shown, seed or 0, per_kind or PER_KIND, chosen)
    pipeline = DiMOOPipeline.from_pretrained(model)
    scores = evaluation.evaluate(pipeline, facts, seed or 0, settings, _log, sheet, preset)
    if out:
        scores.write(out)


def gates(model: str, vq_folder: Path | None, count: int, seed: int, out: Path | None, sheet: Path | None) -> bool:
    """Measure an image tokenizer, of a checkpoint or in a folder of its own; whether every gate is reached."""
    from diffusers import VQModel

    from dimoo.locate import locate
    from dimoo_training.evaluation.tokenizer import measure
    from tokenizers_vq import VQImageTokenizer

    folder = _vq_folder(vq_folder or locate(model) / "vqvae")
    measured = measure(VQImageTokenizer(VQModel.from_pretrained(folder).eval()), count, seed, sheet)
    _log("\n".join(measured.lines()))
    if out:
        measured.write(out)
    return not measured.missed()


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
