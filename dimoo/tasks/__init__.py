"""Tasks: what can be asked of the model."""

from dimoo.tasks.ask import Ask, Turn
from dimoo.tasks.base import Codec, Task
from dimoo.tasks.edit import EDIT_KINDS, Edit
from dimoo.tasks.inpaint import Inpaint, expand, mask_cells
from dimoo.tasks.text_to_image import TextToImage

TASKS = {"generate": TextToImage, "edit": Edit, "inpaint": Inpaint, "ask": Ask}
"""Name of the pipeline's method and of the command -> task."""

__all__ = [
    "EDIT_KINDS", "TASKS", "Ask", "Codec", "Edit", "Inpaint", "Task", "TextToImage", "Turn", "expand", "mask_cells",
]  # fmt: skip
