"""Mixture of experts with DeepSeek routing and block-scaled FP8, as one rank of eight holds it.

With t a token, e an expert, E = 256 global experts of which 32 are local, H = 7168, I = 2048:

    s[t,e]   = 1 / (1 + exp(-logit[t,e]))                    score; the bias only steers selection
    top8(t)  = 8 largest s + bias among the 4 best of 8 groups of 32 experts
    w[t,e]   = s[t,e] / (sum of s over top8(t) + 1e-20) * routed_scaling_factor
    x1, x2   = A[t,:] . W1[e]^T split in two halves [I]      first the linear half, then the gate
    y[t,:]   = sum over local e in top8(t) of  w[t,e] * (silu(x2) * x1) . W2[e]^T

A, W1 and W2 are FP8 codes times fp32 block scales: 1x128 for activations, 128x128 for weights.
Everything runs in fp32; the only rounding to a smaller type is the last one, to bfloat16.
"""

import torch

DEFINITION = {
    "name": "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048",
    "description": (
        "Fused mixture of experts with block-scaled FP8 activations and weights: DeepSeek-V3 "
        "routing without auxiliary loss (sigmoid scores, the best 4 of 8 expert groups, then the "
        "best 8 experts), two grouped GEMMs with SwiGLU between them, weighted sum. Expert "
        "parallel of 8: 32 of the 256 experts are local."
    ),
    "op_type": "moe",
    "tags": [
        "status:verified",
        "model:deepseek-v3",
        "model:deepseek-r1",
        "quantization:float8_e4m3fn",
        "fi_api:flashinfer.fused_moe.trtllm_fp8_block_scale_moe",
        "ep:8",
    ],
    "axes": {
        "seq_len": {"type": "var", "description": "Number of tokens."},
        "num_experts": {"type": "const", "value": 256, "description": "Global experts."},
        "num_local_experts": {"type": "const", "value": 32, "description": "Experts held here."},
        "hidden_size": {"type": "const", "value": 7168},
        "intermediate_size": {"type": "const", "value": 2048},
        "gemm1_out_size": {
            "type": "const",
            "value": 4096,
            "description": "Linear, then gate.",
        },
        "num_hidden_blocks": {"type": "const", "value": 56, "description": "hidden_size / 128."},
        "num_intermediate_blocks": {
            "type": "const",
            "value": 16,
            "description": "intermediate_size / 128.",
        },
        "num_gemm1_out_blocks": {
            "type": "const",
            "value": 32,
            "description": "gemm1_out_size / 128.",
        },
    },
    "inputs": {
        "routing_logits": {
            "shape": ["seq_len", "num_experts"],
            "dtype": "float32",
            "description": "Router output before the sigmoid.",
        },
        "routing_bias": {
            "shape": ["num_experts"],
            "dtype": "bfloat16",
            "description": "Added to the scores for selection only; all zeros for no bias.",
        },
        "hidden_states": {
            "shape": ["seq_len", "hidden_size"],
            "dtype": "float8_e4m3fn",
            "description": "Activation codes.",
        },
        "hidden_states_scale": {
            "shape": ["num_hidden_blocks", "seq_len"],
            "dtype": "float32",
            "description": "One scale for 128 channels of a token; block first, token last.",
        },
        "gemm1_weights": {
            "shape": ["num_local_experts", "gemm1_out_size", "hidden_size"],
            "dtype": "float8_e4m3fn",
            "description": "Linear and gate projections: rows 0-2047 linear, 2048-4095 gate.",
        },
        "gemm1_weights_scale": {
            "shape": ["num_local_experts", "num_gemm1_out_blocks", "num_hidden_blocks"],
            "dtype": "float32",
            "description": "One scale for a block of 128 x 128 weights.",
        },
        "gemm2_weights": {
            "shape": ["num_local_experts", "hidden_size", "intermediate_size"],
            "dtype": "float8_e4m3fn",
            "description": "Down projection.",
        },
        "gemm2_weights_scale": {
            "shape": ["num_local_experts", "num_hidden_blocks", "num_intermediate_blocks"],
            "dtype": "float32",
            "description": "One scale for a block of 128 x 128 weights.",
        },
        "local_expert_offset": {
            "shape": None,
            "dtype": "int32",
            "description": "Global number of the first local expert.",
        },
        "routed_scaling_factor": {
            "shape": None,
            "dtype": "float32",
            "description": "Factor on the normalised routing weights.",
        },
    },
    "outputs": {
        "output": {
            "shape": ["seq_len", "hidden_size"],
            "dtype": "bfloat16",
            "description": "Contribution of the local experts; zero where a token has none.",
        },
    },
}

NUM_EXPERTS, NUM_LOCAL_EXPERTS = 256, 32
NUM_GROUPS, NUM_KEPT_GROUPS, TOP_K = 8, 4, 8
HIDDEN_SIZE, INTERMEDIATE_SIZE = 7168, 2048
BLOCK = 128


def route(routing_logits, routing_bias, routed_scaling_factor):
    """Returns the selected global experts [T, 8] (int64) and their weights [T, 8] (fp32)."""
    scores = 1.0 / (1.0 + torch.exp(-routing_logits.float()))
    biased = scores + routing_bias.float()
    grouped = biased.view(-1, NUM_GROUPS, NUM_EXPERTS // NUM_GROUPS)
    group_scores = grouped.topk(2, dim=-1).values.sum(dim=-1)
    kept_groups = group_scores.topk(NUM_KEPT_GROUPS, dim=-1, sorted=False).indices
    is_kept = torch.zeros_like(group_scores, dtype=torch.bool).scatter_(1, kept_groups, True)
    lowest = torch.finfo(torch.float32).min
    eligible = grouped.masked_fill(~is_kept.unsqueeze(-1), lowest).view(-1, NUM_EXPERTS)
    experts = eligible.topk(TOP_K, dim=-1, sorted=False).indices
    selected = scores.gather(1, experts)
    weights = selected / (selected.sum(dim=-1, keepdim=True) + 1e-20) * routed_scaling_factor
    return experts, weights


def dequantise_weights(codes, scales):
    """codes [N, K] FP8, scales [N/128, K/128] fp32. Returns [N, K] fp32."""
    rows, columns = scales.shape
    blocks = codes.float().view(rows, BLOCK, columns, BLOCK) * scales.view(rows, 1, columns, 1)
    return blocks.view(rows * BLOCK, columns * BLOCK)


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
):
    num_tokens, num_hidden_blocks = hidden_states.shape[0], HIDDEN_SIZE // BLOCK
    for tensor, shape in (
        (routing_logits, (num_tokens, NUM_EXPERTS)),
        (hidden_states, (num_tokens, HIDDEN_SIZE)),
        (hidden_states_scale, (num_hidden_blocks, num_tokens)),
        (gemm1_weights, (NUM_LOCAL_EXPERTS, 2 * INTERMEDIATE_SIZE, HIDDEN_SIZE)),
        (gemm2_weights, (NUM_LOCAL_EXPERTS, HIDDEN_SIZE, INTERMEDIATE_SIZE)),
    ):
        assert tensor.shape == shape, f"expected {shape}, got {tuple(tensor.shape)}"

    experts, weights = route(routing_logits, routing_bias, routed_scaling_factor)
    blocks = hidden_states.float().view(num_tokens, num_hidden_blocks, BLOCK)
    activations = (blocks * hidden_states_scale.t().unsqueeze(-1)).view(num_tokens, HIDDEN_SIZE)
    output = torch.zeros_like(activations)
    for local_expert in range(NUM_LOCAL_EXPERTS):
        expert = local_expert_offset + local_expert
        if not 0 <= expert < NUM_EXPERTS:
            continue
        tokens, choices = torch.nonzero(experts == expert, as_tuple=True)
        if tokens.numel() == 0:
            continue
        # One expert at a time: all 32 in fp32 would take 5.6 GB.
        up_and_gate = dequantise_weights(
            gemm1_weights[local_expert], gemm1_weights_scale[local_expert]
        )
        down = dequantise_weights(gemm2_weights[local_expert], gemm2_weights_scale[local_expert])
        x1, x2 = (activations[tokens] @ up_and_gate.t()).split(INTERMEDIATE_SIZE, dim=1)
        hidden = x2 / (1.0 + torch.exp(-x2)) * x1
        weighted = (hidden @ down.t()) * weights[tokens, choices].unsqueeze(1)
        output.index_add_(0, tokens, weighted)
    return output.to(torch.bfloat16)
