"""FlashInfer's fused MoE: the function of the definition's fi_api, or what Hopper has instead.

sm_100: `trtllm_fp8_block_scale_moe`, which takes the definition's inputs as they are and routes
itself; its result is copied into the output. sm_90: FlashInfer has no kernels of that family;
`cutlass_fused_moe` with use_deepseek_fp8_block_scale takes bf16 activations and rounds them to FP8
itself, so PyTorch (torch.compile) routes and widens the activations first, both timed. That module
is 181 CUDA files, tens of minutes of nvcc: the file refuses to start that within a timed run and
says how to do it once before.
"""

import functools

import flashinfer
import torch
from flashinfer.fused_moe import cutlass_fused_moe, trtllm_fp8_block_scale_moe
from flashinfer.jit.fused_moe import gen_cutlass_fused_moe_sm90_module

PACKAGE = "flashinfer-python"
PREPARED = "nothing"
STANDS_IN = "cutlass_fused_moe behind routing of PyTorch"  # the function itself on sm_100

NUM_EXPERTS, NUM_GROUPS, NUM_KEPT_GROUPS, TOP_K = 256, 8, 4, 8
DEEPSEEK_ROUTING = 2
BLOCK = 128
BUILD = (
    'python -c "from flashinfer.jit.fused_moe import gen_cutlass_fused_moe_sm90_module as make; '
    'make().build(True)"'
)


@torch.compile(dynamic=True)
def route(logits, bias, scaling):
    """The 8 best experts of the 4 best of 8 groups. Returns ids and weights, [T, 8]."""
    scores = torch.sigmoid(logits)
    biased = (scores + bias.float()).view(-1, NUM_GROUPS, logits.shape[1] // NUM_GROUPS)
    best_groups = biased.topk(2, dim=-1).values.sum(-1).topk(NUM_KEPT_GROUPS, dim=-1).indices
    is_out = torch.ones_like(biased[..., 0], dtype=torch.bool).scatter(1, best_groups, False)
    eligible = biased.masked_fill(is_out.unsqueeze(-1), float("-inf")).flatten(1)
    experts = eligible.topk(TOP_K, dim=-1).indices
    chosen = scores.gather(1, experts)
    return experts, chosen / (chosen.sum(-1, keepdim=True) + 1e-20) * scaling


@torch.compile(dynamic=True)
def widen(codes, scales):
    """codes [T, H] FP8, scales [H / 128, T] fp32. Returns [T, H] bf16."""
    blocks = codes.float().unflatten(1, (-1, BLOCK)) * scales.t().unsqueeze(-1)
    return blocks.flatten(1).bfloat16()


def run_sm100(inputs, output):
    weights, down_weights, offset, scaling = inputs[4], inputs[6], *inputs[8:]
    result = trtllm_fp8_block_scale_moe(
        *inputs[:8],
        NUM_EXPERTS,
        TOP_K,
        NUM_GROUPS,
        NUM_KEPT_GROUPS,
        down_weights.shape[2],
        offset,
        weights.shape[0],
        scaling,
        routing_method_type=DEEPSEEK_ROUTING,
    )
    output.copy_(result[0] if isinstance(result, list) else result)


@functools.cache
def require_build():
    """Raises RuntimeError unless FlashInfer's cache holds the compiled cutlass_fused_moe."""
    if not gen_cutlass_fused_moe_sm90_module().is_compiled:
        raise RuntimeError(
            "FlashInfer's cutlass_fused_moe for sm_90 is not compiled here (181 CUDA files, tens "
            f"of minutes); compile it once with: {BUILD}"
        )


def run_sm90(inputs, output):
    logits, bias, codes, scales, w13, s13, w2, s2, offset, scaling = inputs
    require_build()
    if offset % w13.shape[0]:
        raise RuntimeError(
            f"cutlass_fused_moe takes ranks of equal size; local_expert_offset is {offset}, no "
            f"multiple of {w13.shape[0]}"
        )
    experts, weights = route(logits, bias, scaling)
    cutlass_fused_moe(
        widen(codes, scales),
        experts.int(),
        weights,
        w13,
        w2,
        torch.bfloat16,
        [s13, s2],
        ep_size=NUM_EXPERTS // w13.shape[0],
        ep_rank=offset // w13.shape[0],
        output=output,
        use_deepseek_fp8_block_scale=True,
    )


@torch.no_grad()
def run(
    routing_logits,
    routing_bias,
    hidden_states,
    hidden_states_scale,
    gemm1_weights,
    gemm1_weights_scale,
    gemm2_weights,
    gemm2_weights_scale,
    local_expert_offset,
    routed_scaling_factor,
    output,
):
    inputs = (
        routing_logits,
        routing_bias,
        hidden_states,
        hidden_states_scale,
        gemm1_weights,
        gemm1_weights_scale,
        gemm2_weights,
        gemm2_weights_scale,
        local_expert_offset,
        routed_scaling_factor,
    )
    major = torch.cuda.get_device_capability()[0]
    if major not in (9, 10):
        raise RuntimeError(
            f"FlashInfer {flashinfer.__version__} has block-scaled FP8 MoE kernels for sm_90 and "
            f"sm_100; this GPU is sm_{major}x"
        )
    (run_sm90 if major == 9 else run_sm100)(inputs, output)
