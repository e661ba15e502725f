"""Numpy arrays and torch tensors as pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from dimoo.images.source import ImageError

_TOLERANCE = 1e-3  # half precision and resampling step this far outside [0, 1]


def from_array(source: Any, name: str) -> Image.Image:
    array = source if isinstance(source, np.ndarray) else _from_tensor(source, name)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and (array.ndim != 3 or array.shape[2] not in (3, 4)):
        raise ImageError(f"{name}: wrong shape; allowed arrays: (H, W) or (H, W, 1|3|4)")
    if array.dtype.name not in _TO_8BIT:
        raise ImageError(f"{name}: wrong dtype; allowed: {', '.join(_TO_8BIT)}")
    if array.size == 0:
        raise ImageError(f"{name}: empty; allowed: at least one pixel")
    return Image.fromarray(np.ascontiguousarray(_TO_8BIT[array.dtype.name](array, name)))


def _from_tensor(tensor: Any, name: str) -> np.ndarray:
    """(1|3|4, H, W) or (1, 1|3|4, H, W) -> (H, W, C)."""
    picture = tensor[0] if tensor.ndim == 4 and tensor.shape[0] == 1 else tensor
    if picture.ndim != 3 or picture.shape[0] not in (1, 3, 4):
        raise ImageError(f"{name}: wrong shape; allowed tensors: (1|3|4, H, W) or (1, 1|3|4, H, W)")
    picture = picture.detach().cpu().permute(1, 2, 0)
    return (picture.float() if picture.is_floating_point() else picture).numpy()  # numpy has no bfloat16


def _unit_to_8bit(values: np.ndarray, name: str) -> np.ndarray:
    low, high = float(values.min()), float(values.max())
    if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):  # also refuses NaN
        raise ImageError(f"{name}: float values run from {low:g} to {high:g}; allowed: 0 to 1")
    return np.rint(np.clip(values.astype(np.float32), 0, 1) * 255).astype(np.uint8)


def divide_257(values: np.ndarray) -> np.ndarray:
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)  # rounded, 65535 -> 255


_TO_8BIT = {
    "bool": lambda values, name: values.astype(np.uint8) * 255,
    "uint8": lambda values, name: values,
    "uint16": lambda values, name: divide_257(values),
    "float16": _unit_to_8bit, "float32": _unit_to_8bit, "float64": _unit_to_8bit,
}
