"""The sampling loop and its parts."""

from dimoo.sampling.editing import EDITINGS, TokenEditing
from dimoo.sampling.finish import EarlyFinish
from dimoo.sampling.loop import Step, denoise
from dimoo.sampling.noise import NOISES, GumbelNoise, LowPrecisionNoise
from dimoo.sampling.processors import PROCESSORS, REJECTIONS, EarlyRejection
from dimoo.sampling.quotas import QUOTAS
from dimoo.sampling.remasking import REMASKINGS
from dimoo.sampling.rules import RULES, Candidates, TransferRule
from dimoo.sampling.scheduler import ANNEALINGS, Scheduler
from dimoo.sampling.smoothing import SMOOTHINGS, Smoothing
from dimoo.sampling.stopping import STOPPING, AnswerEnd, NeverEarly, NoMasks
from dimoo.sampling.tokens import CONFIDENCES, Truncation
from dimoo.stream import RandomStream

__all__ = [
    "ANNEALINGS", "CONFIDENCES", "EDITINGS", "NOISES", "PROCESSORS", "QUOTAS", "REJECTIONS", "REMASKINGS", "RULES",
    "SMOOTHINGS", "STOPPING", "AnswerEnd", "Candidates", "EarlyFinish", "EarlyRejection", "GumbelNoise",
    "LowPrecisionNoise", "NeverEarly", "NoMasks", "RandomStream", "Scheduler", "Smoothing", "Step", "TokenEditing",
    "TransferRule", "Truncation",
    "denoise",
]  # fmt: skip
