"""DeepGEMM's mega kernel: both FP8 products, the activation and the combination in one launch.

`fp8_mega_moe` of the sm_90 build, run as a single rank: its peer-to-peer buffer is ordinary memory
and experts of other ranks are marked -1. PyTorch routes under torch.compile; copies into the
kernel's buffer and out into the output are timed. Between the products the activation is rounded
to FP8, which leaves about 97 % of the elements within the official tolerance.
"""

import weakref
from types import SimpleNamespace

import deep_gemm
import torch

PACKAGE = "sgl-deep-gemm"
PREPARED = (
    "the weights, once: the halves of W13 swapped and interleaved as the kernel reads them; and "
    "the kernel's buffer, as large as the tokens need"
)

NUM_GROUPS, NUM_KEPT_GROUPS, TOP_K = 8, 4, 8


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
        versions = [tensor._version for tensor in weights]
        known = [(reference(), version) for reference, version in self.key]
        if not known or any(
            old is not new or seen != version
            for (old, seen), new, version in zip(known, weights, versions, strict=True)
        ):
            self.first = self.second = None
            w13, s13, w2, s2 = weights
            swapped = swap_halves(w13.view(torch.uint8)).view(w13.dtype)
            self.first, self.second = deep_gemm.transform_weights_for_mega_moe_sm90(
                (swapped, swap_halves(s13)), (w2, s2)
            )
            self.key = tuple(zip(map(weakref.ref, weights), versions, strict=True))
            self.capacity = 0
        if num_tokens > self.capacity:
            self.allocate(num_tokens, weights[0])

    def allocate(self, num_tokens, w13):
        native = deep_gemm._C
        num_experts, width, hidden_size = w13.shape
        alignment = native.get_token_alignment_for_mega_moe()
        self.capacity = -(-num_tokens // alignment) * alignment
        size, slices = native.get_symm_buffer_size_for_sm90_mega_moe(
            1, num_experts, self.capacity, TOP_K, hidden_size, width // 2, True, "swiglu"
        )
        self.buffer = None
        self.buffer = torch.zeros(size, dtype=torch.int8, device=w13.device)
        views = list(slices(self.buffer))
        convert = deep_gemm._from_dlpack_if_needed
        self.codes = convert(views[0], torch.float8_e4m3fn)
        self.scales, self.experts, self.weights = (convert(view) for view in views[1:4])
        self.symmetric = SimpleNamespace(
            buffer=self.buffer,
            handle=SimpleNamespace(buffer_ptrs=[self.buffer.data_ptr()]),
            group=SimpleNamespace(rank=lambda: 0, size=lambda: 1),
            num_max_tokens_per_rank=self.capacity,
            num_experts=num_experts,
            num_topk=TOP_K,
        )


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
    experts, factors = route(routing_logits, routing_bias, routed_scaling_factor)
    local = experts - local_expert_offset
    mega.codes[:num_tokens].view(torch.uint8).copy_(hidden_states.view(torch.uint8))
    mega.scales[:num_tokens].copy_(hidden_states_scale.t())
    mega.experts[:num_tokens].copy_(local.masked_fill((local < 0) | (local >= num_local), -1))
    mega.weights[:num_tokens].copy_(factors)
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
