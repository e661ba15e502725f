"""Tasks: what can be asked of the model."""

from dimoo.tasks.ask import Ask, Turn
from dimoo.tasks.base import Codec, Task
from dimoo.tasks.edit import EDIT_KINDS, Edit
from dimoo.tasks.inpaint import Inpaint, expand, mask_cells
from dimoo.tasks.text import Infill, Rewrite, Text
from dimoo.tasks.text_to_image import TextToImage

TASKS = {
    "generate": TextToImage, "edit": Edit, "inpaint": Inpaint, "ask": Ask, "write": Text, "infill": Infill,
    "rewrite": Rewrite,
}  # fmt: skip
"""Name of the pipeline's method -> task."""

__all__ = [
    "EDIT_KINDS", "TASKS", "Ask", "Codec", "Edit", "Infill", "Inpaint", "Rewrite", "Task", "Text", "TextToImage",
    "Turn", "expand", "mask_cells",
]  # fmt: skip
