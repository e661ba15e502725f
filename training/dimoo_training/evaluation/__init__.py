"""Scores of a checkpoint on held-out facts, read by the oracle and by exact checkers. The oracle never trains."""

from .facts import EvaluationSet, committed_facts, draw_facts
from .measures import MEASURES
from .run import evaluate, measured
from .scores import Score, Scores

__all__ = ["MEASURES", "EvaluationSet", "Score", "Scores", "committed_facts", "draw_facts", "evaluate", "measured"]
