"""Triton kernels, each with a plain-torch twin of the same name in `dimoo/ops.py`.

Importing this needs triton but no GPU: with TRITON_INTERPRET=1 the kernels run on a CPU, slowly, for tests.
`calls` counts launches by name, so that a test can prove which branch ran.
"""

from dimoo_kernels.launch import calls, device_seconds
from dimoo_kernels.log_prob import chosen_log_prob
from dimoo_kernels.rms_norm import rms_norm
from dimoo_kernels.rope import apply_rope, rope_into
from dimoo_kernels.rows import gather_rows, scatter_rows
from dimoo_kernels.sample import guided_sample
from dimoo_kernels.swiglu import swiglu

__all__ = [
    "apply_rope", "calls", "chosen_log_prob", "device_seconds", "gather_rows", "guided_sample", "rms_norm",
    "rope_into", "scatter_rows", "swiglu",
]  # fmt: skip
