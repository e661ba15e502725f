"""The benchmark: the published loop and every preset in one run, with what they cost and how well they draw.

Everything here but `score` and `plot` needs torch, transformers and numpy only: no diffusers, no network.
"""
