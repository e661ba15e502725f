"""Cache policies: which rows are recomputed now."""

from dimoo.cache.max_logit import SELECTIONS, MaxLogitCache, changed_first, published
from dimoo.cache.none import NoCache
from dimoo.cache.policy import CachePolicy
from dimoo.cache.reuse import PromptReuse, SourceReuse
from dimoo.cache.store import KVStore
from dimoo.cache.window import DualCache, PrefixCache, VicinityCache

CACHES = {
    "none": NoCache, "max-logit": MaxLogitCache, "source-reuse": SourceReuse, "prompt-reuse": PromptReuse,
    "prefix": PrefixCache, "dual": DualCache, "vicinity": VicinityCache,
}  # fmt: skip

__all__ = [
    "CACHES", "SELECTIONS", "CachePolicy", "DualCache", "KVStore", "MaxLogitCache", "NoCache", "PrefixCache",
    "PromptReuse", "SourceReuse", "VicinityCache", "changed_first", "published",
]  # fmt: skip
