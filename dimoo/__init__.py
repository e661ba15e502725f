"""DiMOO: one masked-token transformer that draws, edits and describes pictures."""

__version__ = "0.1.0"

_PUBLIC = {
    "DiMOOPipeline": "dimoo.pipeline",
    "DiMOOPipelineOutput": "dimoo.pipeline",
    "Canvas": "dimoo.canvas",
    "Scheduler": "dimoo.sampling",
    "Vocab": "dimoo.vocab",
    "denoise": "dimoo.sampling",
    "load_image": "dimoo.images",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str):
    """Import the heavy parts when they are first asked for, so that `dimoo --help` needs no torch."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dimoo' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)
