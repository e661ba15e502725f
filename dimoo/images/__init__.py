"""Pictures in, pictures out: one loader, parameters inside PNG files, strips and sheets."""

from dimoo.images.load import MAX_PIXELS, load_image, load_mask
from dimoo.images.metadata import png_bytes, read_parameters, save_png
from dimoo.images.names import safe_filename, unique_path
from dimoo.images.source import ImageError, open_source
from dimoo.images.strip import sheet, strip

__all__ = [
    "MAX_PIXELS",
    "ImageError",
    "load_image",
    "load_mask",
    "open_source",
    "png_bytes",
    "read_parameters",
    "safe_filename",
    "save_png",
    "sheet",
    "strip",
    "unique_path",
]
