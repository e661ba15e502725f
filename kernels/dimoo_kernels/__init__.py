"""Triton kernels, each with a plain-torch twin in `dimoo/ops.py`; importing this needs no GPU."""
