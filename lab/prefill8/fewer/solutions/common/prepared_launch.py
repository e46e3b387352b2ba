"""Triton launches that are prepared first, so that several can be made back to back.

Triton binds a launch's arguments on the host in tens of microseconds, which is longer than many
kernels run: launched one by one, the GPU idles between them. An entry point prepares all kernels
of its chain (which compiles them at their first use) and then launches them: only the bare
launches lie between kernels. Nothing is kept from one call to the next but Triton's own cache.
"""

import functools

import torch

from .target import is_interpreted


def prepare(kernel, grid, *args, **kwargs):
    """Bind a launch of a @triton.jit function; the result, called, launches it.

    grid: one to three sizes. args, kwargs: the kernel's arguments and launch options. The launch
    goes to the device and stream that are current then.
    """
    if is_interpreted(kernel):  # the interpreter has nothing to prepare
        return functools.partial(kernel[grid], *args, **kwargs)
    compiled = kernel.warmup(*args, grid=grid, **kwargs)
    values = {p.name: p.default for p in kernel.params if p.has_default}
    values |= zip(kernel.arg_names, args, strict=False)  # the rest is in kwargs
    values |= kwargs
    # Addresses, not tensors: a launch asks each tensor for its address, and the driver about that.
    ordered = [values[name] for name in kernel.arg_names]
    bound = [v.data_ptr() if isinstance(v, torch.Tensor) else v for v in ordered]
    return functools.partial(_launch, compiled[(*grid, 1, 1)[:3]], bound, ordered)


def _launch(run, bound, ordered):
    """ordered holds the tensors whose addresses are bound: they stay allocated until now."""
    run(*bound)
