"""Alignment: Self-GRPO and its relatives, one loop for all.

Read in this order: recipes (what a run is), train (the loop), rollout, questions and judge, rewards, moves (how
likelihoods are read), objectives (the maths), updates (what is learned from a round).
"""
