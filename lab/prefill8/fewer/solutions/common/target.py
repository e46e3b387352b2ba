"""What a launch is for: the interpreter, an ahead-of-time compilation, or the tensors' device."""

import torch
import triton


def is_interpreted(kernel):
    """True where Triton's interpreter runs the kernel: fp32 products, no device features."""
    return not isinstance(kernel, triton.JITFunction)


def has_programmatic_launch(tensor, kernel):
    """True where a kernel can be launched before the one in front of it has ended (sm_90 on).

    CPU tensors outside the interpreter stand for an ahead-of-time compilation for such a device.
    """
    if is_interpreted(kernel):
        return False
    return not tensor.is_cuda or torch.cuda.get_device_capability(tensor.device) >= (9, 0)
