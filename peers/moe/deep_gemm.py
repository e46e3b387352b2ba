"""DeepGEMM's grouped FP8 matrix products, with routing and the rest in PyTorch.

`m_grouped_fp8_gemm_nt_contiguous` twice: the rows of each local expert lie together, padded to the
alignment that the kernel wants. PyTorch routes, lays the rows out, and gathers and adds the results
with the routing weights; torch.compile fuses these pieces. Between the products the activation is
rounded to bf16 (the only output that DeepGEMM has) and to FP8 with a scale for each 128 columns.
Up to FEW_TOKENS tokens the row count is a bound, beyond it is read back from the device, which
leaves the device idle while the host waits and launches again.
"""

import deep_gemm
import torch

PACKAGE = "sgl-deep-gemm"
PREPARED = "nothing"

NUM_GROUPS, NUM_KEPT_GROUPS, TOP_K = 8, 4, 8
BLOCK, FP8_MAX = 128, 448.0
# The bound is 8 rows a token and a block an expert, an eighth of the former used on average. By
# estimate, moving its empty rows takes as long as the host's wait at about this many tokens.
FEW_TOKENS = 1024


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
def place(experts, offset, num_local, alignment):
    """Row of each (token, choice) among the rows of all local experts, -1 for foreign experts.

    Returns rows [T, 8] int64 and the number of rows, alignment included, a scalar tensor.
    """
    local = (experts - offset).flatten()
    is_chosen = local.unsqueeze(1) == torch.arange(num_local, device=local.device)
    rank = is_chosen.long().cumsum(0)
    counts = rank[-1]
    padded = (counts + alignment - 1) // alignment * alignment
    begin = padded.cumsum(0) - padded
    row = ((rank - 1 + begin) * is_chosen).sum(1)
    return torch.where(is_chosen.any(1), row, -1).view_as(experts), padded.sum()


@torch.compile(dynamic=True)
def lay_out(codes, scales, rows, experts, offset, num_rows):
    """codes [T, H] uint8, scales [H / 128, T]. Returns them by row, and each row's expert or -1."""
    is_local = rows.flatten() >= 0
    target = torch.where(is_local, rows.flatten(), num_rows)
    choice = torch.arange(target.shape[0], device=rows.device)
    token = torch.zeros(num_rows + 1, dtype=torch.int64, device=rows.device)
    token = token.scatter(0, target, choice // rows.shape[1])[:num_rows]
    expert = torch.full((num_rows + 1,), -1, dtype=torch.int32, device=rows.device)
    expert = expert.scatter(0, target, (experts.flatten() - offset).int())[:num_rows]
    return codes[token], scales.t()[token], expert


@torch.compile(dynamic=True)
def activate(products):
    """products [M, up | gate] bf16. Returns FP8 codes [M, I] and scales [M, I / 128]."""
    up, gate = products.float().chunk(2, dim=1)
    value = (torch.nn.functional.silu(gate) * up).unflatten(1, (-1, BLOCK))
    scale = value.abs().amax(-1).clamp(min=1e-10) / FP8_MAX
    codes = (value / scale.unsqueeze(-1)).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return codes.flatten(1), scale


@torch.compile(dynamic=True)
def combine(products, rows, weights, output):
    """products [M, H] bf16; rows with no token may hold anything."""
    chosen = products[rows.clamp(min=0)].float() * weights.unsqueeze(-1)
    output.copy_(chosen.masked_fill((rows < 0).unsqueeze(-1), 0.0).sum(1))


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
    num_local, width, _ = gemm1_weights.shape
    num_tokens, hidden_size = output.shape
    alignment = deep_gemm.get_mk_alignment_for_contiguous_layout()
    experts, weights = route(routing_logits, routing_bias, routed_scaling_factor)
    rows, total = place(experts, local_expert_offset, num_local, alignment)
    if num_tokens <= FEW_TOKENS:
        choices = num_tokens * TOP_K
        num_rows = min(choices, num_local + choices // alignment) * alignment
    else:
        num_rows = max(alignment, int(total))
    codes, scales, expert = lay_out(
        hidden_states.view(torch.uint8),
        hidden_states_scale,
        rows,
        experts,
        local_expert_offset,
        num_rows,
    )
    up_and_gate = output.new_empty(num_rows, width)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
        (codes.view(torch.float8_e4m3fn), scales),
        (gemm1_weights, gemm1_weights_scale),
        up_and_gate,
        expert,
    )
    down = output.new_empty(num_rows, hidden_size)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
        activate(up_and_gate), (gemm2_weights, gemm2_weights_scale), down, expert
    )
    combine(down, rows, weights, output)
