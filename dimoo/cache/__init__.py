"""Cache policies: which rows are recomputed now."""

from dimoo.cache.max_logit import SELECTIONS, MaxLogitCache, changed_first, published
from dimoo.cache.none import NoCache
from dimoo.cache.store import KVStore

CACHES = {"none": NoCache, "max-logit": MaxLogitCache}

__all__ = ["CACHES", "SELECTIONS", "KVStore", "MaxLogitCache", "NoCache", "changed_first", "published"]
