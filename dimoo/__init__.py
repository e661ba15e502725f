"""DiMOO: one masked-token transformer that draws, edits and describes pictures."""

__version__ = "0.1.0"
