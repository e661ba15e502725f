"""The sampling loop and its parts."""

from dimoo.sampling.finish import EarlyFinish
from dimoo.sampling.loop import Step, denoise
from dimoo.sampling.noise import NOISES, GumbelNoise, LowPrecisionNoise
from dimoo.sampling.quotas import QUOTAS
from dimoo.sampling.scheduler import ANNEALINGS, Scheduler
from dimoo.sampling.stopping import STOPPING, AnswerEnd, NeverEarly, NoMasks
from dimoo.sampling.tokens import CONFIDENCES, Truncation
from dimoo.stream import RandomStream

__all__ = [
    "ANNEALINGS",
    "CONFIDENCES",
    "NOISES",
    "QUOTAS",
    "STOPPING",
    "AnswerEnd",
    "EarlyFinish",
    "GumbelNoise",
    "LowPrecisionNoise",
    "NeverEarly",
    "NoMasks",
    "RandomStream",
    "Scheduler",
    "Step",
    "Truncation",
    "denoise",
]
