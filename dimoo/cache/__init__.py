"""Cache policies: which rows are recomputed now."""

from dimoo.cache.max_logit import SELECTIONS, MaxLogitCache, changed_first, published
from dimoo.cache.none import NoCache
from dimoo.cache.store import KVStore
from dimoo.cache.window import DualCache, PrefixCache, VicinityCache

CACHES = {
    "none": NoCache, "max-logit": MaxLogitCache, "prefix": PrefixCache, "dual": DualCache, "vicinity": VicinityCache,
}  # fmt: skip

__all__ = [
    "CACHES", "SELECTIONS", "DualCache", "KVStore", "MaxLogitCache", "NoCache", "PrefixCache", "VicinityCache",
    "changed_first", "published",
]  # fmt: skip
