"""Flags that several commands share, each written once, as dataclasses; `grouped` gives them to a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

_sampling = partial(typer.Option, rich_help_panel="Sampling (default: what the model is best sampled with)")
_fast = partial(typer.Option, rich_help_panel="Speed (default: that of --preset)")
_decoding = partial(
    typer.Option,
    metavar="NAME[(SETTING=VALUE,...)]",
    rich_help_panel="Decoding (also your own, as file.py:Name)",
)
_machine = partial(typer.Option, rich_help_panel="Model and machine")
_start = partial(typer.Option, rich_help_panel="Chance")
_output = partial(typer.Option, rich_help_panel="Output")

Words = str | None
Number = float | None
Whole = int | None


@dataclass(frozen=True)
class Sampling:
    """How to sample. Fields are those of `dimoo.settings.Settings`; None is the checkpoint's default."""

    num_inference_steps: Annotated[Whole, _sampling("--steps", help="Denoising steps.")] = None
    guidance_scale: Annotated[Number, _sampling("--guidance", help="Weight of the words; 0 is off.")] = None
    image_guidance_scale: Annotated[
        Number, _sampling("--image-guidance", help="Weight of the source picture, in edits; 0 is off.")
    ] = None
    guidance: Annotated[
        Words, _sampling("--guider", help="How guidance is mixed: none, text, text+image or nested.")
    ] = None
    guidance_interval: Annotated[
        Words, _sampling(metavar="START,STOP", help="Guide only in this part of the run, such as 0.1,0.8.")
    ] = None
    temperature: Annotated[Number, _sampling(help="Randomness of the tokens; 0 takes the best.")] = None
    rank_temperature: Annotated[Number, _sampling(help="Randomness of the order; as --temperature.")] = None
    anneal: Annotated[Words, _sampling(help="How that randomness fades: constant or linear.")] = None
    quota: Annotated[
        Words, _sampling(help="Tokens a step: cosine (pictures), linear, even (text) or powers-of-two.")
    ] = None
    top_k: Annotated[Whole, _sampling(help="Draw only from the best K tokens.")] = None
    top_p: Annotated[Number, _sampling(help="Draw only from the best tokens of this joint share.")] = None
    min_p: Annotated[Number, _sampling(help="Draw only tokens this near to the best, 0 to 1.")] = None
    noise: Annotated[Words, _sampling(help="float32, or published-bf16 as in the released code.")] = None
    preset: Annotated[
        Words, _fast(help="exact, published (the released cache), balanced or fast.", show_default="exact")
    ] = None
    cache: Annotated[
        Words,
        _fast(help="What is reused between steps: none, max-logit, source-reuse, prompt-reuse; for text prefix, dual "
              "or vicinity."),
    ] = None  # fmt: skip
    cache_ratio: Annotated[Number, _fast(help="Share of positions that a step reuses, 0 to 1.")] = None
    cache_warmup: Annotated[Number, _fast(help="Share of the steps, at the start, that reuse nothing.")] = None
    cache_refresh: Annotated[Whole, _fast(help="Compute everything again every so many steps.")] = None
    cache_drift: Annotated[Number, _fast(help="... and when the logits have moved by this much.")] = None
    early_finish: Annotated[Number, _fast(help="Finish once all that is left is this probable, 0 to 1.")] = None
    rule: Annotated[
        Words,
        _decoding(
            help="Which tokens are written: quota, random, threshold, threshold-or-quota, factor, hierarchical or "
            "entropy-budget."
        ),
    ] = None
    confidence: Annotated[
        Words, _decoding(help="Order of the candidates: probability, margin or entropy.", show_default="probability")
    ] = None
    processors: Annotated[
        Words, _decoding(help="Change the logits: credit, repetition-penalty; several with commas.")
    ] = None
    reject: Annotated[Words, _decoding(help="Hold back early end tokens: eoser.")] = None
    remask: Annotated[
        Words,
        _decoding(
            help="Put written tokens back: remdm-cap, remdm-rescale, remdm-confidence, remdm-loop or low-confidence."
        ),
    ] = None
    editing: Annotated[Words, _decoding(help="Replace written tokens in place: confident.")] = None
    windows: Annotated[
        Words, _decoding(help="What is open at a time: whole (pictures), left-to-right (text) or powers-of-two.")
    ] = None
    smoothing: Annotated[Words, _decoding(help="Show the network what it leaned to before: soft.")] = None
    unroll: Annotated[Whole, _sampling(help="Steps between two looks at what is left to do.", show_default="1")] = None

    best_of: Annotated[Whole, _sampling(help="Tries of each drawing; the model keeps the best by itself.")] = None
    search: Annotated[Words, _sampling(help="How the tries are spent: best-of or hierarchical.")] = None
    verifier: Annotated[Words, _sampling(help="What a drawing is checked for: facts (each part) or whole.")] = None

    def given(self) -> dict[str, Any]:
        """The fields that were given, as `Settings` takes them. Raises ValueError for a wrong interval."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        if self.guidance_interval is not None:
            values["guidance_interval"] = numbers(self.guidance_interval, 2, "--guidance-interval", float)
        return values


@dataclass(frozen=True)
class Machine:
    """Which model, and where it runs."""

    model: Annotated[
        Words, _machine(help='"dimoo-tiny", a checkpoint folder or a hub id (owner/name).', show_default="dimoo-tiny")
    ] = None
    device: Annotated[
        Words,
        _machine(metavar="auto|cpu|cuda", help="Where to compute; cuda:1 is the second GPU.", show_default="auto"),
    ] = None
    dtype: Annotated[
        Words,
        _machine(
            metavar="float32|bfloat16|float16", help="Precision.", show_default="float32 on cpu, bfloat16 on cuda"
        ),
    ] = None


@dataclass(frozen=True)
class Start:
    """Where chance starts: the same seed and index make the same picture."""

    seed: Annotated[Whole, _start(help="A whole number; without it one is drawn, and printed.")] = None
    index: Annotated[Whole, _start(help="Number of the first picture of this seed.", show_default="0")] = None


@dataclass(frozen=True)
class Output:
    """Where pictures go."""

    out: Annotated[
        Path | None, _output("--out", "-o", help="A folder, or the .png file to write or replace.", show_default="out/")
    ] = None
    num_images: Annotated[Whole, _output("--num-images", "-n", help="Pictures of each prompt.", show_default="1")] = (
        None
    )
    batch_size: Annotated[
        Whole, _output(help="Pictures drawn at once.", show_default="float32 on cpu: 4096 codes, else 1")
    ] = None
    preview_every: Annotated[
        Whole, _output(help="Also save how the picture looks every so many steps, as NAME-step003.png.")
    ] = None
    strip: Annotated[bool, _output("--strip", help="Also save its steps side by side, as NAME-steps.png.")] = False

    @property
    def filmed(self) -> bool:
        """Whether the steps are shown at all."""
        return self.strip or self.preview_every is not None


def grouped(command: Callable) -> Callable:
    """`command` for typer: each parameter that is one of the dataclasses above becomes the flags of its fields."""
    hints = get_type_hints(command, include_extras=True)
    bundles = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    shown = []
    for parameter in inspect.signature(command).parameters.values():
        bundle = bundles.get(parameter.name)
        shown += _parameters(bundle) if bundle else [parameter.replace(annotation=hints[parameter.name])]
    shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, bundle in bundles.items():
            values[name] = bundle(**{field.name: values.pop(field.name) for field in fields(bundle)})
        command(**values)

    run.__signature__ = inspect.Signature(shown)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def _parameters(bundle: type) -> list[inspect.Parameter]:
    hints = get_type_hints(bundle, include_extras=True)
    kind, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return [
        inspect.Parameter(f.name, kind, annotation=hints[f.name], default=empty if f.default is MISSING else f.default)
        for f in fields(bundle)
    ]


def flag_of(name: str) -> str:
    """num_inference_steps -> --steps: what a setting is called on the command line."""
    hint = get_type_hints(Sampling, include_extras=True).get(name)
    said = hint.__metadata__[0].default if hint else ...
    return said if isinstance(said, str) else "--" + name.replace("_", "-")


def numbers(text: str, count: int, flag: str, kind: type = int) -> tuple:
    """ "1,2,3,4" -> (1, 2, 3, 4). Raises ValueError naming the flag."""
    try:
        values = tuple(kind(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count:
        words = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{flag} takes {count} {words} with commas between them, got {text!r}")
    return values
