"""Pixels back to the scene: the judge of every picture of this world.

Every cell is compared with all sprites of the world by squared error, which is one matrix product for a
whole batch. A cell that no sprite explains, as a whole and quarter by quarter, is malformed: a quarter is
one image token, so a single wrong token (a red quarter in an orange star) is seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from .render import RGB, alpha, backdrop
from .scene import BACKGROUNDS, CELL_PX, CELLS, COLORS, GRID, SHAPES, SIDE_PX, SIZES, Cell, Object, Scene

CHUNK = 256  # pictures at a time: bounds memory to about 40 MB
HALF = CELL_PX // 2
QUARTER = HALF * HALF * 3
NOISE = 120.0  # squared error a value that is always forgiven: sigma 11 of 255
EMPTY = 220.0  # squared error a value up to which a quarter without an object counts as clean
MISFIT = 0.22  # share of an object's energy a cell may leave unexplained (blur of 0.7 px: 0.12)
QUARTER_MISFIT = 0.40  # the same for one quarter
RIVAL = 0.15  # share of a quarter's energy by which another shape of that colour and size may fit better
COLOR_RIVAL = 2.0  # by what factor (squared) a quarter may be nearer to another colour: blur dims colours
BACKGROUND = 400.0  # squared error a value up to which a background is recognised

Kind = tuple[str, str, str]
KINDS: tuple[Kind, ...] = tuple(product(SHAPES, COLORS, SIZES))


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a picture shows.

    `scene` is None when any cell is malformed (strict); `objects` are the readable ones even then, and
    `background` is None when it is none of the known ones.
    """

    scene: Scene | None
    malformed: tuple[Cell, ...]
    objects: tuple[Object, ...] = ()
    background: str | None = None


@cache
def _tiles() -> np.ndarray:
    """Backgrounds as (G, 4, 192): quarters of a cell."""
    return _quarters(np.stack([backdrop(name) for name in BACKGROUNDS])[:, None])[:, 0].astype(np.float32)


@cache
def _deltas(background: int) -> tuple[np.ndarray, np.ndarray]:
    """What each kind adds to a background: (K, 4, 192), and its energy by quarter (K, 4)."""
    under = backdrop(BACKGROUNDS[background]).astype(np.float32)
    cells = [alpha(s, z)[..., None] * (np.float32(RGB[c]) - under) for s, c, z in KINDS]
    delta = _quarters(np.stack(cells)[:, None])[:, 0]
    return delta, (delta**2).sum(-1)


@cache
def _covers() -> np.ndarray:
    """Coverage of each kind by quarter, (K, 4, 64)."""
    masks = np.stack([alpha(s, z) for s, _, z in KINDS])
    return masks.reshape(-1, 2, HALF, 2, HALF).swapaxes(2, 3).reshape(len(KINDS), 4, -1)


def _quarters(cells: np.ndarray) -> np.ndarray:
    """Cells (B, N, 16, 16, 3) to quarters (B, N, 4, 192)."""
    batch, count = cells.shape[:2]
    split = cells.reshape(batch, count, 2, HALF, 2, HALF, 3).swapaxes(3, 4)
    return split.reshape(batch, count, 4, QUARTER)


def _cells(pixels: np.ndarray) -> np.ndarray:
    """Pictures (B, 64, 64, 3) to quarters of cells (B, 16, 4, 192), float32."""
    batch = len(pixels)
    grid = pixels.reshape(batch, GRID, CELL_PX, GRID, CELL_PX, 3).swapaxes(2, 3)
    return _quarters(grid.reshape(batch, GRID * GRID, CELL_PX, CELL_PX, 3).astype(np.float32))


def _backgrounds(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index and squared error a value of the nearest background, both (B,).

    The median over cells drops the objects, which fill at most a few of the sixteen cells.
    """
    typical = np.median(cells, axis=1)
    errors = np.stack([((typical - tile) ** 2).mean((1, 2)) for tile in _tiles()], 1)
    return errors.argmin(1), errors.min(1)


def _read(rest: np.ndarray, background: int) -> tuple[np.ndarray, np.ndarray]:
    """Best kind (-1: empty) and malformed flag of N cells minus their background, (N, 4, 192)."""
    delta, energy = _deltas(background)
    flat = rest.reshape(len(rest), -1)
    score = energy.sum(1) - 2 * flat @ delta.reshape(len(KINDS), -1).T  # (N, K), error less that of empty
    kind = np.where(score.min(1) < 0, score.argmin(1), -1)
    broken = ((rest**2).sum(-1) > EMPTY * QUARTER).any(1)
    full = np.flatnonzero(kind >= 0)
    broken[full] = _misfit(rest[full], kind[full], background) | _patchy(rest[full], kind[full], background)
    return kind, broken


def _misfit(rest: np.ndarray, kind: np.ndarray, background: int) -> np.ndarray:
    """Whether the best kind explains its cell badly, as a whole or in some quarter, (N,)."""
    delta, energy = _deltas(background)
    error = ((rest - delta[kind]) ** 2).sum(-1)
    slack, own = NOISE * QUARTER, energy[kind]
    rivals = _same_looks()[kind]  # (N, shapes)
    best = ((rest[:, None] - delta[rivals]) ** 2).sum(-1).min(1)
    return (
        (error.sum(1) > MISFIT * own.sum(1) + 4 * slack)
        | (error > QUARTER_MISFIT * own + slack).any(1)
        | (error - best > RIVAL * own + RIVAL * slack).any(1)
    )


@cache
def _same_looks() -> np.ndarray:
    """For each kind, the kinds of its colour and size, (K, shapes)."""
    index = {kind: i for i, kind in enumerate(KINDS)}
    return np.array([[index[shape, color, size] for shape in SHAPES] for _, color, size in KINDS])


def _patchy(rest: np.ndarray, kind: np.ndarray, background: int) -> np.ndarray:
    """Whether some well covered quarter of an object is clearly of another colour, (N,)."""
    cover = _covers()[kind]  # (N, 4, 64)
    weight = cover**4  # edges mix with the background: trust the inside
    mass = weight.sum(-1)
    rgb = np.float32([RGB[c] for c in COLORS])
    under = _tiles()[background].reshape(1, 4, HALF * HALF, 3)
    pixels = rest.reshape(len(rest), 4, HALF * HALF, 3) + under
    mean = np.einsum("nqp,nqpc->nqc", weight, pixels) / np.maximum(mass, 1e-6)[..., None]
    distance = ((mean[:, :, None] - rgb) ** 2).sum(-1)  # (N, 4, colours)
    own = np.array([COLORS.index(k[1]) for k in KINDS])[kind]
    to_own = np.take_along_axis(distance, own[:, None, None], 2)[..., 0]
    return ((COLOR_RIVAL * distance.min(-1) < to_own) & (mass > 4)).any(1)


def _assemble(background: int, error: float, kinds: np.ndarray, broken: np.ndarray) -> Parsed:
    """One picture's findings as a `Parsed`."""
    if error > BACKGROUND:
        return Parsed(None, CELLS)
    name = BACKGROUNDS[background]
    bad = tuple(cell for cell, flag in zip(CELLS, broken, strict=True) if flag)
    things = tuple(
        Object(*KINDS[kinds[i]], CELLS[i]) for i in range(len(CELLS)) if kinds[i] >= 0 and not broken[i]
    )
    return Parsed(None if bad else Scene(things, name), bad, things, name)


def _parse_chunk(pixels: np.ndarray) -> list[Parsed]:
    cells = _cells(pixels)
    background, error = _backgrounds(cells)
    rest = cells - _tiles()[background][:, None]
    kinds = np.full(cells.shape[:2], -1)
    broken = np.zeros(cells.shape[:2], bool)
    for index in np.unique(background):
        rows = background == index
        kind, bad = _read(rest[rows].reshape(-1, 4, QUARTER), int(index))
        kinds[rows], broken[rows] = kind.reshape(-1, len(CELLS)), bad.reshape(-1, len(CELLS))
    return [_assemble(*row) for row in zip(background, error, kinds, broken, strict=True)]


def parse_batch(pixels: np.ndarray) -> list[Parsed]:
    """Read B pictures, uint8 (B, 64, 64, 3)."""
    pixels = np.asarray(pixels)
    if pixels.ndim != 4 or pixels.shape[1:] != (SIDE_PX, SIDE_PX, 3) or pixels.dtype != np.uint8:
        raise ValueError(
            f"pictures of shape {pixels.shape} and type {pixels.dtype}, "
            f"expected (B, {SIDE_PX}, {SIDE_PX}, 3) and uint8"
        )
    found: list[Parsed] = []
    for start in range(0, len(pixels), CHUNK):
        found += _parse_chunk(pixels[start : start + CHUNK])
    return found


def parse(pixels: np.ndarray) -> Parsed:
    """Read one picture, uint8 (64, 64, 3)."""
    return parse_batch(np.asarray(pixels)[None])[0]
