"""Denoisers: token ids in, logits out. The table drives the contract tests."""

from dimoo.model.config import LLaDAConfig
from dimoo.model.llada import DenoiserOutput, LLaDAForMultiModalGeneration
from dimoo.model.load import check_checkpoint
from dimoo.model.size import memory_estimate, parameter_count
from dimoo.model.toy import AnswerDenoiser, HashDenoiser

MODELS = {"llada": LLaDAForMultiModalGeneration, "toy": HashDenoiser}

__all__ = [
    "MODELS",
    "LLaDAConfig",
    "LLaDAForMultiModalGeneration",
    "DenoiserOutput",
    "AnswerDenoiser",
    "HashDenoiser",
    "check_checkpoint",
    "parameter_count",
    "memory_estimate",
]
