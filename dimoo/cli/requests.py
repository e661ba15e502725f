"""What a picture was asked for: built from flags, kept in its parameters, read back from them.

Each class is one task; its fields are the parameters of that task under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from dimoo.cli.sources import Source
from dimoo.images import load_image, load_mask
from dimoo.settings import Defaults
from dimoo.tasks import Edit, Inpaint, Task, TextToImage, expand

Box = tuple[int, int, int, int]
"""left, top, right, bottom in pixels; right and bottom are just outside."""


@dataclass(frozen=True)
class Drawing:
    """A picture from words."""

    prompt: str
    height: int | None = None
    width: int | None = None
    name = "generate"

    def task(self, defaults: Defaults) -> Task:
        return TextToImage(self.prompt, self.height or defaults.height, self.width or defaults.width)


@dataclass(frozen=True)
class Editing:
    """A picture from one or two pictures and an instruction."""

    prompt: str
    images: tuple[Source, ...]
    edit: str = "edit_other"
    name = "edit"

    def task(self, defaults: Defaults) -> Task:
        return Edit(self.prompt, [load_image(source.path) for source in self.images], self.edit)


@dataclass(frozen=True)
class Filling:
    """A hole in a picture, given by a mask or boxes, or the room around it."""

    prompt: str
    images: tuple[Source, ...]
    mask: Source | None = None
    boxes: tuple[Box, ...] | None = None
    expand: Box | None = None
    preserve: bool = True
    name = "inpaint"

    def task(self, defaults: Defaults) -> Task:
        picture = load_image(self.images[0].path)
        if self.expand:
            return Inpaint(self.prompt, *expand(picture, *self.expand), self.preserve)
        if self.mask:
            mask = load_mask(self.mask.path, size=picture.size)
        else:
            mask = boxed(picture.size, self.boxes or ())
        return Inpaint(self.prompt, picture, mask, self.preserve)


Request = Drawing | Editing | Filling
REQUESTS: dict[str, type] = {kind.name: kind for kind in (Drawing, Editing, Filling)}


def boxed(size: tuple[int, int], boxes: tuple[Box, ...]) -> Image.Image:
    """A mask of `size` that is white in the boxes. Raises ValueError for a box outside of the picture."""
    mask = Image.new("L", size, 0)
    for box in boxes:
        left, top, right, bottom = box
        if not (0 <= left < right <= size[0] and 0 <= top < bottom <= size[1]):
            raise ValueError(
                f"--box {','.join(map(str, box))} is left,top,right,bottom in pixels; "
                f"it must lie in the picture of {size[0]}x{size[1]}"
            )
        ImageDraw.Draw(mask).rectangle((left, top, right - 1, bottom - 1), fill=255)
    return mask


def parameters(request: Request) -> dict[str, Any]:
    """What a picture keeps of its request, as JSON holds it."""
    stated = {name: value for name, value in asdict(request).items() if value is not None}
    return {"task": request.name, **stated}


def read(stated: Mapping[str, Any], beside: Path) -> Request:
    """The request in a picture's parameters; source pictures are found and checked.

    Raises ValueError for a task that is unknown, a parameter that is missing, and changed sources.
    """
    kind = REQUESTS.get(stated.get("task", ""))
    if kind is None:
        raise ValueError(f"unknown task {stated.get('task')!r}; allowed: {', '.join(REQUESTS)}")
    known = {field.name: stated[field.name] for field in fields(kind) if stated.get(field.name) is not None}
    try:
        return kind(**{name: READERS.get(name, _plain)(value, beside) for name, value in known.items()})
    except (TypeError, KeyError) as error:
        raise ValueError(f"the parameters do not describe a picture to {kind.name}: {error}") from error


def _plain(value: Any, beside: Path) -> Any:
    return value


READERS = {
    "images": lambda value, beside: tuple(Source.found(one, beside) for one in value),
    "mask": Source.found,
    "boxes": lambda value, beside: tuple(tuple(box) for box in value),
    "expand": lambda value, beside: tuple(value),
}
"""Parameters that JSON holds in another form -> how they become fields again."""
