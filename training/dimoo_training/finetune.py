"""Fine-tuning of a checkpoint in the hosted layout on pre-tokenised data, with the loop of `sft.py`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoTokenizer

from dimoo.checkpoint import read_ratio
from dimoo.locate import locate
from dimoo.model.config import LLaDAConfig
from dimoo.model.llada import LLaDAForMultiModalGeneration
from dimoo.model.load import read_config
from dimoo.text import TextTokenizer
from dimoo.vocab import Vocab
from dimoo_training.adapters import adapt
from dimoo_training.checkpoint import codebook_of, write_model
from dimoo_training.hosted_data import check_origin
from dimoo_training.parquet import ParquetSource
from dimoo_training.placement import replicated
from dimoo_training.recipes import FineTune
from dimoo_training.sft import fit
from dimoo_training.sharded import sharded
from dimoo_training.state import replace_folder


def finetune(name: str, data: Path, recipe: FineTune, out: Path, log: Callable[[str], None] = print) -> None:
    """Train, going on from the state in `out`; out/checkpoint can be loaded like the checkpoint it came from.

    With adapters, out/adapter is what was trained (peft's layout), and out/checkpoint the model with it merged, made
    at the end. Under `accelerate launch` with several processes the weights are in shards.
    """
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    folder = locate(name)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    config = read_config(folder, LLaDAConfig)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    vocab = Vocab.from_checkpoint(tokenizer, config, len(codebook_of(folder / "vqvae")))
    source = ParquetSource(data, TextTokenizer(tokenizer, vocab), vocab, read_ratio(folder), recipe, world, rank)
    check_origin(data, {"image_offset": vocab.image_offset})
    if not recipe.steps:
        recipe = replace(recipe, steps=max(1, round(recipe.epochs * source.steps_an_epoch)))
    model = load(folder, config, recipe, empty=rank > 0)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if rank == 0:
        log(f"{trained / 1e6:.1f}M of {sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters, "
            f"{len(source.data)} examples, {recipe.steps} steps of {source.share}")

    def export(weights: dict[str, Tensor]) -> None:
        if recipe.rank:
            aside = out / "adapter.part"
            shutil.rmtree(aside, ignore_errors=True)
            model.save_pretrained(aside, state_dict=weights)
            replace_folder(aside, out / "adapter")
        else:
            write_checkpoint(folder, config, weights, out / "checkpoint")

    fit(model, source, recipe, out, export, log, sharded if world > 1 else replicated)
    if recipe.rank and rank == 0:
        merge(folder, out / "adapter", out / "checkpoint")


def load(folder: Path, config: LLaDAConfig, recipe: FineTune, empty: bool = False) -> nn.Module:
    """The model to train: all weights in float32, or in the recipe's precision with adapters in float32.

    `empty`: only its shape, for processes that get their weights from the main one.
    """
    dtype = torch.bfloat16 if recipe.rank and recipe.precision == "bf16" else torch.float32
    if empty:
        with torch.device("meta"):
            model = LLaDAForMultiModalGeneration(config).to(dtype)
    else:
        model = LLaDAForMultiModalGeneration.from_pretrained(folder, dtype=dtype)
    if recipe.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return adapt(model, recipe.rank, empty) if recipe.rank else model


def merge(folder: Path, adapter: Path, target: Path) -> None:
    """Write the checkpoint of `folder` with an adapter added to its weights."""
    model = LLaDAForMultiModalGeneration.from_pretrained(folder, dtype=torch.float32)
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    write_checkpoint(folder, merged.config, dict(merged.state_dict()), target)


def write_checkpoint(folder: Path, config: LLaDAConfig, weights: dict[str, Tensor], target: Path) -> None:
    """A checkpoint with new weights; tokenizers and sampling defaults are those of `folder`."""
    aside = target.with_name(target.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(folder, aside, ignore=lambda at, names: _weights_of(Path(at) == folder, names))
    write_model(config, weights, aside)
    replace_folder(aside, target)


def _weights_of(root: bool, names: list[str]) -> list[str]:
    """What is not copied: the old weights, and hidden folders of the hub's cache."""
    return [name for name in names if name.startswith(".") or (root and "safetensors" in name)]
