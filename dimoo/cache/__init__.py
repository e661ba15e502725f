"""Cache policies: which rows are recomputed now."""

from dimoo.cache.max_logit import SELECTIONS, MaxLogitCache, changed_first, published
from dimoo.cache.none import NoCache
from dimoo.cache.reuse import PromptReuse, SourceReuse
from dimoo.cache.store import KVStore

CACHES = {"none": NoCache, "max-logit": MaxLogitCache, "source-reuse": SourceReuse, "prompt-reuse": PromptReuse}

__all__ = [
    "CACHES", "SELECTIONS", "KVStore", "MaxLogitCache", "NoCache", "PromptReuse", "SourceReuse", "changed_first",
    "published",
]  # fmt: skip
