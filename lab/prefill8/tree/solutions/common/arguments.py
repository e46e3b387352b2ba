"""Argument checks of the entry points: a bad call ends in a sentence, never in a crash.

Checks read only metadata (shape, dtype, strides, device): they cost no device work and no
synchronisation, so they lie outside the measured span.
"""


def require(tensor, name, shape, dtype, like=None):
    """Check one tensor argument.

    shape: expected sizes as a tuple; None matches any size.
    dtype: expected torch.dtype.
    like: a tensor that was checked before; `tensor` must be on the same device.
    Raises TypeError (not a tensor, wrong dtype) or ValueError (shape, strides, device).
    """
    if not hasattr(tensor, "data_ptr"):
        raise TypeError(f"{name}: expected a tensor {_show(shape)}, got {type(tensor).__name__}")
    if tensor.dtype != dtype:
        raise TypeError(f"{name}: expected {dtype}, got {tensor.dtype}")
    sizes = tuple(tensor.shape)
    fits = len(sizes) == len(shape) and all(
        want is None or got == want for got, want in zip(sizes, shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{name}: expected shape {_show(shape)}, got {_show(sizes)}")
    if not tensor.is_contiguous():
        raise ValueError(
            f"{name}: expected a contiguous tensor, got strides {tuple(tensor.stride())} for "
            f"shape {_show(sizes)}; pass {name}.contiguous()"
        )
    if like is not None and tensor.device != like.device:
        raise ValueError(f"{name}: expected it on {like.device}, got {tensor.device}")


def require_disjoint(output, output_name, tensor, name):
    """Refuse an output that shares its memory with an input: the kernels read while they write."""
    if tensor is None or output.numel() == 0 or tensor.numel() == 0:
        return
    start, stop = _span(output)
    other_start, other_stop = _span(tensor)
    if start < other_stop and other_start < stop:
        raise ValueError(f"{output_name}: expected memory of its own, got an overlap with {name}")


def _span(tensor):
    start = tensor.data_ptr()
    return start, start + tensor.numel() * tensor.element_size()


def _show(shape):
    return "[" + ", ".join("*" if size is None else str(size) for size in shape) + "]"
