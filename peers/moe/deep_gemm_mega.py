"""DeepGEMM's mega kernel: both FP8 products, the activation and the combination in one launch.

`fp8_mega_moe` of the sm_90 build, run as a single rank: its peer-to-peer buffer is ordinary memory
and experts of other ranks are marked -1. PyTorch routes and fills the kernel's buffer in one graph
of torch.compile, which is timed. Between the products the activation is rounded to FP8, which
leaves 95.5 to 98.1 % of the elements within the official tolerance (smoke workloads, H200, not
recorded). The kernel carries one accumulator from block to block and divides it by each scale: a
scale of exactly 0, which random scales hit now and then, would make a whole token NaN, so its block
is given codes 0 and scale 1.
"""

import weakref
from types import SimpleNamespace

import deep_gemm
import torch

PACKAGE = "sgl-deep-gemm"
PREPARED = (
    "the weights, once: the halves of W13 swapped and interleaved as the kernel reads them, blocks "
    "of scale 0 emptied; and the kernel's buffer, as large as the tokens need"
)

NUM_GROUPS, NUM_KEPT_GROUPS, TOP_K = 8, 4, 8
BLOCK = 128


def remember(*tensors):
    """These tensors by identity and version; none is kept alive."""
    return [(weakref.ref(tensor), tensor._version) for tensor in tensors]


def is_same(key, *tensors):
    """Whether `key` remembers just these tensors, and none was written since."""
    return len(key) == len(tensors) and all(
        reference() is tensor and version == tensor._version
        for (reference, version), tensor in zip(key, tensors, strict=True)
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


def empty_zero_scales(codes, scales):
    """codes [..., K] uint8, scales [..., K / 128]: a block of scale 0 gets codes 0 and scale 1."""
    is_zero = scales == 0.0
    blocks = codes.unflatten(-1, (-1, BLOCK)).masked_fill(is_zero.unsqueeze(-1), 0)
    return blocks.flatten(-2), scales.masked_fill(is_zero, 1.0)


@torch.compile(dynamic=True)
def fill(logits, bias, scaling, offset, num_local, codes, scales, views):
    """views: codes uint8, scales, experts and weights of the kernel's buffer, a row a token."""
    experts, weights = route(logits, bias, scaling)
    local = experts - offset
    is_foreign = (local < 0) | (local >= num_local)
    kept_codes, kept_scales = empty_zero_scales(codes, scales.t())
    to_codes, to_scales, to_experts, to_weights = views
    to_codes.copy_(kept_codes)
    to_scales.copy_(kept_scales)
    to_experts.copy_(local.masked_fill(is_foreign, -1))
    to_weights.copy_(weights)


def prepare_weights(codes, scales):
    """codes [E, N, K] FP8, scales [E, N / 128, K / 128]. Returns copies without scales of 0."""
    by_row = scales.repeat_interleave(BLOCK, dim=1)
    emptied, _ = empty_zero_scales(codes.view(torch.uint8), by_row)
    return emptied.view(codes.dtype), scales.masked_fill(scales == 0.0, 1.0)


def swap_halves(tensor):
    """[E, up | gate, ...] to [E, gate | up, ...]; the kernel wants the gate first."""
    up, gate = tensor.chunk(2, dim=1)
    return torch.cat([gate, up], dim=1)


class Mega:
    """Weights in the kernel's layout and its buffer, for the tensors and tokens given last."""

    def __init__(self):
        self.key, self.capacity = (), 0

    def prepare(self, num_tokens, *weights):
        """weights: W13, its scales, W2, its scales."""
        if not is_same(self.key, *weights):
            self.key, self.capacity, self.first, self.second = (), 0, None, None
            w13, s13, w2, s2 = weights
            codes, scales = prepare_weights(w13, s13)
            swapped = swap_halves(codes.view(torch.uint8)).view(w13.dtype)
            self.first, self.second = deep_gemm.transform_weights_for_mega_moe_sm90(
                (swapped, swap_halves(scales)), prepare_weights(w2, s2)
            )
            self.key = remember(*weights)
        if num_tokens > self.capacity:
            self.allocate(num_tokens, weights[0])

    def allocate(self, num_tokens, w13):
        """A zeroed buffer in the place of the one before, which is released first."""
        self.capacity, self.views, self.symmetric = 0, (), None
        native = deep_gemm._C
        num_experts, width, hidden_size = w13.shape
        alignment = native.get_token_alignment_for_mega_moe()
        capacity = -(-num_tokens // alignment) * alignment
        size, slices = native.get_symm_buffer_size_for_sm90_mega_moe(
            1, num_experts, capacity, TOP_K, hidden_size, width // 2, True, "swiglu"
        )
        buffer = torch.zeros(size, dtype=torch.int8, device=w13.device)
        codes, *others = map(deep_gemm._from_dlpack_if_needed, list(slices(buffer))[:4])
        # Each a storage of its own: torch.compile writes into no views of one in several dtypes.
        self.views = tuple(map(torch.from_dlpack, (codes.view(torch.uint8), *others)))
        self.symmetric = SimpleNamespace(
            buffer=buffer,
            handle=SimpleNamespace(buffer_ptrs=[buffer.data_ptr()]),
            group=SimpleNamespace(rank=lambda: 0, size=lambda: 1),
            num_max_tokens_per_rank=capacity,
            num_experts=num_experts,
            num_topk=TOP_K,
        )
        self.capacity = capacity


mega = Mega()


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
    if torch.cuda.get_device_capability()[0] != 9:
        raise RuntimeError(
            "this file drives the sm_90 mega kernel, which takes FP8 weights; the one for sm_100 "
            "takes FP4 weights, which the definition does not have"
        )
    num_tokens, num_local = output.shape[0], gemm1_weights.shape[0]
    weights = (gemm1_weights, gemm1_weights_scale, gemm2_weights, gemm2_weights_scale)
    mega.prepare(num_tokens, *weights)
    fill(
        routing_logits,
        routing_bias,
        routed_scaling_factor,
        local_expert_offset,
        num_local,
        hidden_states.view(torch.uint8),
        hidden_states_scale,
        tuple(view[:num_tokens] for view in mega.views),
    )
    deep_gemm.fp8_mega_moe(
        output,
        mega.first,
        mega.second,
        mega.symmetric,
        recipe=(128, 128, 128),
        activation="swiglu",
        activation_clamp=None,
        fast_math=True,
    )
