"""Programmatic dependent launch: a kernel of a chain is set up while the one before it drains.

Every kernel of the chain but the first is launched with launch_pdl=True, and calls
enter_chain(PDL=True) before it touches memory, in every CTA and unconditionally: so a kernel
that has ended implies that all kernels before it have ended, and each may read (or overwrite)
what any of them wrote. The first kernel is launched plainly, and waits for the stream as usual.
Needs compute capability 9.0; with PDL=False the call is empty, which also suits the interpreter.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def enter_chain(PDL: tl.constexpr):
    """Wait for the kernels before this one, then let the next one be set up."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
