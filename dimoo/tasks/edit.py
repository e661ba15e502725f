"""A picture from a picture and an instruction: edits, controls, subjects, styles, views, dense maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from PIL import Image

from dimoo.canvas import Row
from dimoo.tasks.base import Codec, ImageTask, image_row, need_text

CONTROLS = ("canny", "depth", "hed", "openpose", "mask")
DENSE = {
    "canny": "Generate a canny edge map according to the image.",
    "depth": "Generate a depth map according to the image.",
    "hed": "Generate a hed edge map according to the image.",
    "openpose": "Generate a pose estimation map according to the image.",
    "mask": "Generate a segmentation mask according to the image.",
}
VIEWS = ("front", "back", "left", "right")

EDIT_KINDS: dict[str, tuple[str, str | None]] = {
    **{f"edit_{verb}": ("edit", None) for verb in ("add", "remove", "replace", "background", "transfer", "other")},
    **{f"{name}_control": ("control", None) for name in CONTROLS},
    **{f"{name}_pred": ("image_to_image", None) for name in CONTROLS},
    **{f"{name}_dense": ("dense", text) for name, text in DENSE.items()},
    **{
        f"multi_view_{view}": ("view", f"Generate the {view} view based on the provided front view.")
        for view in VIEWS
    },
    "subject_driven": ("subject", None),
    "image_ref_transfer": ("style", "Transform the current image into the style of the provided image."),
    "other": ("image_to_image", None),
}
"""Kind -> (system prompt, fixed instruction or None for the user's own).

Names and texts are those of the hosted checkpoint, and of `dimoo-tiny` for controls by a mask.
"""

PICTURES = {"image_ref_transfer": 2}
"""Kinds that take more than one picture: content, then style."""


@dataclass
class Edit(ImageTask):
    """Answer an instruction about one or two pictures with a picture of the size of the first.

    `image_ref_transfer` takes two. Kinds with a fixed instruction ignore `prompt`.
    """

    prompt: str
    images: Sequence[Image.Image]
    edit: str = "edit_other"
    grid: tuple[int, int] | None = field(default=None, init=False)
    kind = "edit"

    def __post_init__(self):
        if self.edit not in EDIT_KINDS:
            raise ValueError(f"unknown kind of edit {self.edit!r}; allowed: {', '.join(EDIT_KINDS)}")
        wanted = PICTURES.get(self.edit, 1)
        if len(self.images) != wanted:
            raise ValueError(f"{self.edit} takes {('one picture', 'two pictures')[wanted - 1]}, got {len(self.images)}")
        if EDIT_KINDS[self.edit][1] is None:
            need_text(self.prompt)

    def prepare(self, codec: Codec) -> Row:
        system, fixed = EDIT_KINDS[self.edit]
        codes = [codec.read(image)[1] for image in self.images]
        self.grid = tuple(codes[0].shape)
        conditions = codec.text.conditions(system, fixed or self.prompt, [codec.vocab.lay_out(c) for c in codes])
        return image_row(codec, codec.vocab.empty_image(*self.grid), conditions, self.grid)
