"""Scene to pixels: every object fills exactly its own cell of 16x16 pixels, times `scale`.

A picture of a larger scale, averaged over scale x scale pixels, is the plain one: the oracle reads it that way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from PIL import Image, ImageDraw

from .scene import CELL_PX, GRID, SIDE_PX, Scene, require

SUPERSAMPLE = 8  # sub-pixels a side and pixel: smooth edges

RGB: dict[str, tuple[int, int, int]] = {
    "red": (224, 36, 48),
    "green": (36, 158, 66),
    "blue": (38, 84, 226),
    "yellow": (250, 208, 28),
    "purple": (124, 40, 176),
    "orange": (250, 124, 20),
    "cyan": (28, 196, 214),
    "pink": (250, 128, 190),
}

RADIUS_PX: dict[str, float] = {"large": 7.2, "small": 4.6}


def _polygon(points: list[tuple[float, float]]) -> Callable[[float], np.ndarray]:
    """A filled polygon; points are (x, y) in units of the radius, y downwards."""

    def draw(radius: float) -> np.ndarray:
        side, scale = CELL_PX * SUPERSAMPLE, radius * SUPERSAMPLE
        image = Image.new("L", (side, side))
        corners = [(side / 2 - 0.5 + x * scale, side / 2 - 0.5 + y * scale) for x, y in points]
        ImageDraw.Draw(image).polygon(corners, fill=1)
        return np.asarray(image, np.float32)

    return draw


def _region(inside: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[float], np.ndarray]:
    """A region given by a predicate on (x, y) in units of the radius, y downwards."""

    def draw(radius: float) -> np.ndarray:
        side = CELL_PX * SUPERSAMPLE
        axis = ((np.arange(side) + 0.5) / SUPERSAMPLE - CELL_PX / 2) / radius
        return inside(axis[None, :], axis[:, None]).astype(np.float32)

    return draw


def _heart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The sextic heart curve, stretched to the whole cell."""
    u, v = 1.16 * x, 0.13 - 1.12 * y
    return (u * u + v * v - 1) ** 3 - u * u * v**3 <= 0


def _cross(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (np.minimum(abs(x), abs(y)) <= 0.27) & (np.maximum(abs(x), abs(y)) <= 0.98)


def _star_points(inner: float) -> list[tuple[float, float]]:
    angles = [np.pi * i / 5 for i in range(10)]
    return [
        (np.sin(a) * (inner if i % 2 else 1.08), 0.09 - np.cos(a) * (inner if i % 2 else 1.08))
        for i, a in enumerate(angles)
    ]


# Each shape is as unlike the others as 16 px allow: a test asks for a least distance between masks.
DRAW: dict[str, Callable[[float], np.ndarray]] = {
    "circle": _region(lambda x, y: x * x + y * y <= 0.98**2),
    "square": _region(lambda x, y: np.maximum(abs(x), abs(y)) <= 0.972),
    "triangle": _polygon([(0, -0.98), (1.02, 0.86), (-1.02, 0.86)]),
    "star": _polygon(_star_points(0.42)),
    "heart": _region(_heart),
    "cross": _region(_cross),
    "diamond": _region(lambda x, y: abs(x) * 1.35 + abs(y) <= 1.0),
    "ring": _region(lambda x, y: abs(np.sqrt(x * x + y * y) - 0.77) <= 0.23),
}


@cache
def alpha(shape: str, size: str, scale: int = 1) -> np.ndarray:
    """Coverage of a cell by a shape, float32 (16 scale, 16 scale) in 0..1; `scale` divides SUPERSAMPLE."""
    require("shape", shape, tuple(DRAW))
    require("size", size, tuple(RADIUS_PX))
    fine, side, finer = DRAW[shape](RADIUS_PX[size]), CELL_PX * scale, SUPERSAMPLE // scale
    mask = fine.reshape(side, finer, side, finer).mean((1, 3))
    mask.setflags(write=False)
    return mask


def _flat(level: int) -> np.ndarray:
    return np.full((CELL_PX, CELL_PX), level)


def _stripes() -> np.ndarray:
    return np.where(np.arange(CELL_PX)[:, None] % 4 < 2, 206, 186) + _flat(0)


def _checks() -> np.ndarray:
    half = np.arange(CELL_PX) // 4 % 2
    return np.where(half[:, None] ^ half[None, :], 86, 68)


# Grey levels at least 50 apart, and periods dividing 8 px, so that every 8x8 patch is the same code.
TEXTURE: dict[str, Callable[[], np.ndarray]] = {
    "white": lambda: _flat(250),
    "black": lambda: _flat(16),
    "gray": lambda: _flat(138),
    "striped": _stripes,
    "checkered": _checks,
}


def enlarge(pixels: np.ndarray, scale: int) -> np.ndarray:
    """(H, W, 3) -> (H scale, W scale, 3): every pixel a square."""
    return pixels.repeat(scale, 0).repeat(scale, 1)


@cache
def backdrop(background: str, scale: int = 1) -> np.ndarray:
    """One empty cell, uint8 (16 scale, 16 scale, 3)."""
    require("background", background, tuple(TEXTURE))
    tile = enlarge(np.repeat(TEXTURE[background]().astype(np.uint8)[..., None], 3, axis=2), scale)
    tile.setflags(write=False)
    return tile


@cache
def sprite(shape: str, color: str, size: str, background: str, scale: int = 1) -> np.ndarray:
    """One cell with an object, uint8 (16 scale, 16 scale, 3)."""
    require("color", color, tuple(RGB))
    cover, under = alpha(shape, size, scale)[..., None], backdrop(background, scale)
    cell = np.rint(under + cover * (np.float32(RGB[color]) - under)).astype(np.uint8)
    cell.setflags(write=False)
    return cell


@cache
def _empty(background: str, scale: int) -> np.ndarray:
    return np.tile(backdrop(background, scale), (GRID, GRID, 1))


def render(scene: Scene, scale: int = 1) -> np.ndarray:
    """The picture of a scene, uint8 (64 scale, 64 scale, 3)."""
    picture, side = _empty(scene.background, scale).copy(), CELL_PX * scale
    for thing in scene.objects:
        row, col = thing.cell[0] * side, thing.cell[1] * side
        picture[row : row + side, col : col + side] = sprite(
            thing.shape, thing.color, thing.size, scene.background, scale
        )
    return picture


def render_batch(scenes: list[Scene]) -> np.ndarray:
    """The pictures of B scenes, uint8 (B, 64, 64, 3)."""
    pictures = np.empty((len(scenes), SIDE_PX, SIDE_PX, 3), np.uint8)
    for picture, scene in zip(pictures, scenes, strict=True):
        picture[:] = render(scene)
    return pictures
