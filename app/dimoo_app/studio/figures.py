"""What the studio shows that Gradio has no component for: pictures in the making, facts, and tokens. Plain HTML."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import torch
from PIL import Image

from dimoo.settings import Defaults

SMALL = 256
"""Pictures with a side below are enlarged without smoothing, so that their pixels can be seen."""


def looks(defaults: Defaults) -> list[str]:
    """Style classes of a component that shows pictures of the model's size."""
    return ["small-pixels"] if min(defaults.width, defaults.height) < SMALL else []


@dataclass(frozen=True)
class Figure:
    """A picture with a line below it."""

    picture: Image.Image
    caption: str = ""

    def html(self) -> str:
        style = ' style="image-rendering:pixelated"' if min(self.picture.size) < SMALL else ""
        words = escape(self.caption or "picture", quote=True)
        return f'<figure><img alt="{words}" src="{data_url(self.picture)}"{style}>{_caption(self.caption)}</figure>'


@dataclass(frozen=True)
class Passage:
    """Words with a line below them."""

    words: str
    caption: str = ""

    def html(self) -> str:
        return f"<figure><blockquote>{escape(self.words) or '…'}</blockquote>{_caption(self.caption)}</figure>"


def _caption(words: str) -> str:
    return f"<figcaption>{escape(words)}</figcaption>" if words else ""


def stage(figures: Sequence[Figure | Passage], above: str = "") -> str:
    """Pictures or passages side by side."""
    shown = "".join(one.html() for one in figures)
    return f'<div class="live">{above}<div class="stage">{shown}</div></div>'


def data_url(picture: Image.Image) -> str:
    """Small pictures as PNG, which is exact; large ones as JPEG, which is quick."""
    form = "PNG" if min(picture.size) < SMALL else "JPEG"
    file = io.BytesIO()
    picture.convert("RGB").save(file, form, quality=85)
    return f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def meter(done: int, total: int, left: str, right: str = "") -> str:
    """A bar with words on both sides."""
    share = 100 * done / max(total, 1)
    words = f'<div class="words"><span>{escape(left)}</span><span>{escape(right)}</span></div>'
    return (f'<div class="meter" role="progressbar" aria-valuenow="{done}" aria-valuemin="0" aria-valuemax="{total}">'
            f'{words}<div class="rail"><i style="width:{share:.1f}%"></i></div></div>')  # fmt: skip


def empty(title: str, words: str) -> str:
    """What stands where nothing is yet, and what to do about it."""
    return f'<div class="empty"><b>{escape(title)}</b><span>{escape(words)}</span></div>'


def done(words: str) -> str:
    return f'<div class="quiet" role="status">{escape(words)}</div>'


def facts(values: Mapping[str, Any]) -> str:
    """Names and values as a table."""
    rows = "".join(f"<tr><td>{escape(str(name))}</td><td>{escape(_said(value))}</td></tr>"
                   for name, value in values.items())  # fmt: skip
    return f'<table class="facts">{rows}</table>'


def _said(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_said(one)}" for name, one in value.items())
    return str(value)


def heat(confidence: torch.Tensor) -> Image.Image:
    """A grid (h, w) of probabilities as a picture, h x w pixels: dark is unsure, bright is sure, grey is open."""
    sure = confidence.float().cpu().numpy()
    low, high = np.array([59, 28, 90]), np.array([250, 225, 90])
    colour = low + (high - low) * np.nan_to_num(sure)[..., None]
    colour[np.isnan(sure)] = 128
    return Image.fromarray(colour.round().astype(np.uint8))


def marked(picture: Image.Image, cells: torch.Tensor) -> Image.Image:
    """The picture with the cells (h, w) bool that will be filled in the accent colour, on the token grid."""
    array = np.asarray(enlarged(picture, 384).convert("RGB")).astype(np.float32)
    tall, wide = array.shape[0] // cells.shape[0], array.shape[1] // cells.shape[1]
    hole = np.kron(cells.numpy(), np.ones((tall, wide), bool))
    array[hole] = 0.35 * array[hole] + 0.65 * np.array([13, 148, 136])
    array[::tall], array[:, ::wide] = 0.8 * array[::tall], 0.8 * array[:, ::wide]
    return Image.fromarray(array.clip(0, 255).astype(np.uint8))


def enlarged(picture: Image.Image, side: int = 512) -> Image.Image:
    """At least about `side` pixels wide or high, by whole factors, so that pixels stay square."""
    factor = max(1, side // max(picture.size))
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)


def seconds(number: float) -> str:
    return f"{number:.1f} s" if number < 90 else f"{number / 60:.1f} min"
