"""Many requests from a file into a folder: each once, whatever happens in between."""

from dimoo.batch.folder import Folder
from dimoo.batch.items import BadLines, Item, read_geneval, read_items
from dimoo.batch.runner import ENGINES, Plan, run

__all__ = ["ENGINES", "BadLines", "Folder", "Item", "Plan", "read_geneval", "read_items", "run"]
