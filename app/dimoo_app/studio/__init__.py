"""The studio: a Gradio page over the engine. One file a tab; `page.py` puts them together."""

from dimoo_app.studio.history import History
from dimoo_app.studio.page import build
from dimoo_app.studio.theme import dress, mount

__all__ = ["History", "build", "dress", "mount"]
