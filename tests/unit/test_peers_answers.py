"""What peers compute around their libraries, on a CPU: the libraries' calls are stand-ins in fp32.

torch.compile is switched off where it is not what is tested; it takes a minute a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from tests.gpu.references import reference
from tests.oracles import dsa_attention, dsa_indexer, gdn_decode, gdn_prefill, moe
from tests.packed_peers import load_peer

BLOCK, TOP_K = 128, 8
NUM_LOCAL, HIDDEN, INTERMEDIATE, OFFSET = 4, 256, 128, 32


@pytest.fixture
def peer(tmp_path, monkeypatch):
    """Loads a peer without torch.compile, its library replaced by a stand-in."""
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")

    def load(room, library, package=None, **names):
        if package is not None:
            module = ModuleType(package)
            module.__dict__.update(names)
            monkeypatch.setitem(sys.modules, package, module)
        return load_peer(room, library, tmp_path)

    return load


# PyTorch alone


@pytest.mark.parametrize("batch_size", [1, 3])
def test_gdn_decode_of_torch(peer, batch_size):
    inputs = gdn_decode.random_inputs(batch_size, seed=1)
    outputs = gdn_decode.empty_outputs(batch_size)
    peer("gdn_decode", "torch_compile").run(*inputs.values(), *outputs)
    for got, want in zip(outputs, reference("gdn_decode")(*inputs.values()), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("has_state", [True, False])
def test_gdn_prefill_of_torch(peer, has_state):
    inputs = gdn_prefill.batch_of([5, 0, 1, 9], seed=2)
    outputs = gdn_prefill.empty_outputs(inputs)
    if not has_state:
        inputs["state"] = None
    peer("gdn_prefill", "torch_compile").run(*inputs.values(), *outputs)
    for got, want in zip(outputs, reference("gdn_prefill")(*inputs.values()), strict=True):
        torch.testing.assert_close(got.float(), want.float(), rtol=2.0**-7, atol=1e-6)


def attention_inputs():
    """Padding at the end, padding in between, no padding, and nothing but padding."""
    inputs = dsa_attention.random_inputs(4, 40, seed=3)
    ids = inputs["sparse_indices"]
    ids[0, :3] = torch.tensor([7, 7, 64], dtype=torch.int32)
    ids[1, 5::9] = dsa_attention.random_rows(40, ids[1, 5::9].numel(), seed=4)
    ids[2] = dsa_attention.random_rows(40, ids.shape[1], seed=5)
    return inputs


def assert_attends(outputs, inputs):
    for got, want in zip(outputs, reference("dsa_attention")(*inputs.values()), strict=True):
        torch.testing.assert_close(got.float(), want.float(), rtol=1e-2, atol=1e-4)


def test_dsa_attention_of_torch(peer):
    inputs, outputs = attention_inputs(), dsa_attention.empty_outputs(4)
    peer("dsa_attention", "torch_compile").run(*inputs.values(), *outputs)
    assert_attends(outputs, inputs)


SEQ_LENS = [1, 64, 0, 2048, 2100]


def assert_selects(topk_indices, inputs):
    values = list(inputs.values())
    bounds = dsa_indexer.error_bounds(*values)
    scores = dsa_indexer.oracle(*values)
    dsa_indexer.check(topk_indices, scores, inputs["block_table"], inputs["seq_lens"], bounds)


def indexer_inputs(seed):
    """Unused entries of the block table are 0, as in the official workloads."""
    inputs = dsa_indexer.random_inputs(SEQ_LENS, seed=seed)
    used = torch.arange(inputs["block_table"].shape[1]) * dsa_indexer.PAGE_SIZE
    unused = used >= inputs["seq_lens"].unsqueeze(1)
    inputs["block_table"].masked_fill_(unused, 0)
    return inputs


def test_dsa_indexer_of_torch(peer):
    inputs, output = indexer_inputs(6), dsa_indexer.empty_output(len(SEQ_LENS))
    peer("dsa_indexer", "torch_compile").run(*inputs.values(), output)
    assert_selects(output, inputs)


def test_moe_of_torch_is_the_reference(peer):
    weights = moe.zero_weights()
    moe.fill_expert(weights, 3, torch.Generator().manual_seed(7))
    inputs = moe.random_inputs(moe.route_to([[OFFSET + 3, *range(7)]]), weights, OFFSET, seed=8)
    output = torch.full((1, moe.HIDDEN), float("nan"), dtype=torch.bfloat16)
    peer("moe", "torch_compile").run(*inputs.values(), output)
    want = reference("moe")(*inputs.values())
    assert torch.equal(output, want)
    assert want.abs().max() > 0


def run_compiled(script):
    """What a script prints in a process of its own, where nothing switches torch.compile off."""
    environment = {key: value for key, value in os.environ.items() if key != "TORCHDYNAMO_DISABLE"}
    child = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment | {"PYTHONPATH": os.getcwd()},
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


@pytest.mark.slow
def test_torch_compile_compiles(tmp_path):
    script = (
        "import pathlib, torch\n"
        "from tests.oracles.gdn_decode import empty_outputs, random_inputs\n"
        "from tests.packed_peers import load_peer\n"
        "from tests.gpu.references import reference\n"
        f"peer = load_peer('gdn_decode', 'torch_compile', pathlib.Path({str(tmp_path)!r}))\n"
        "for batch_size in (1, 2, 5):\n"
        "    inputs, outputs = random_inputs(batch_size, 1), empty_outputs(batch_size)\n"
        "    peer.run(*inputs.values(), *outputs)\n"
        "    for got, want in zip(outputs, reference('gdn_decode')(*inputs.values())):\n"
        "        torch.testing.assert_close(got.float(), want.float(), rtol=2**-7, atol=1e-6)\n"
        "import torch._dynamo.utils as utils\n"
        "print(utils.counters['stats']['unique_graphs'])\n"
    )
    assert 1 <= int(run_compiled(script)) <= 3


@pytest.mark.slow
def test_the_buffer_of_deep_gemm_mega_is_filled_by_compiled_code(tmp_path):
    """Its parts are views of one buffer in four types, which torch.compile refuses to write."""
    script = (
        "import pathlib, sys, torch\n"
        "from types import ModuleType, SimpleNamespace\n"
        "from tests.packed_peers import load_peer\n"
        "def slices(buffer):\n"
        "    types = torch.uint8, torch.float32, torch.int64, torch.float32\n"
        "    parts = buffer.split([128 * width for width in (256, 8, 64, 32)])\n"
        "    return [part.view(kind).view(128, -1) for part, kind in zip(parts, types)]\n"
        "stub = sys.modules['deep_gemm'] = ModuleType('deep_gemm')\n"
        "stub._from_dlpack_if_needed = lambda tensor: tensor\n"
        "stub._C = SimpleNamespace(\n"
        "    get_token_alignment_for_mega_moe=lambda: 128,\n"
        "    get_symm_buffer_size_for_sm90_mega_moe=lambda *_: (128 * 360, slices))\n"
        f"peer = load_peer('moe', 'deep_gemm_mega', pathlib.Path({str(tmp_path)!r}))\n"
        "peer.mega.allocate(128, torch.empty(4, 256, 256))\n"
        "for tokens in (5, 128, 3):\n"
        "    logits, scales = torch.randn(tokens, 256), torch.randn(2, tokens)\n"
        "    codes = torch.full((tokens, 256), tokens, dtype=torch.uint8)\n"
        "    scales[1, 2] = 0.0\n"
        "    peer.fill(logits, torch.zeros(256), 2.5, 32, 4, codes, scales,\n"
        "              tuple(view[:tokens] for view in peer.mega.views))\n"
        "    got, got_scales, experts, weights = slices(peer.mega.symmetric.buffer)\n"
        "    assert (got[2, 128:] == 0).all() and got_scales[2, 1] == 1.0\n"
        "    got[2, 128:], got_scales[2, 1] = tokens, 0.0\n"
        "    assert (got[:tokens] == tokens).all()\n"
        "    assert torch.equal(got_scales[:tokens], scales.t())\n"
        "    assert ((experts >= -1) & (experts < 4)).all()\n"
        "    assert torch.allclose(weights[:tokens].sum(1), torch.tensor(2.5))\n"
        "import torch._dynamo.utils as utils\n"
        "print(utils.counters['stats']['unique_graphs'])\n"
    )
    assert 1 <= int(run_compiled(script)) <= 3


# Indexers


def test_dsa_indexer_of_deep_gemm_schedules_each_seq_lens_once(peer):
    """DeepGEMM's logits are wider than asked for, and unwritten past a sequence's end."""
    planned = []

    def plan(context, page, sms, ids):
        assert (context.shape[1], page, sms, ids) == (1, 64, 132, None)
        planned.append(context.flatten().tolist())
        return planned[-1]

    def logits(q, cache, weights, context, table, schedule, width, is_clean):
        assert (schedule, is_clean, q.shape[1]) == (context.flatten().tolist(), False, 1)
        assert cache.dtype == torch.uint8
        result = torch.full((q.shape[0], width + 192), float("nan"))
        rows = (q.squeeze(1), cache.view(torch.int8), weights, context.flatten(), table)
        for row, scores in enumerate(dsa_indexer.oracle(*rows)):
            result[row, : len(scores)] = torch.as_tensor(scores).float()
        return result

    deep_gemm = {
        "get_num_sms": lambda: 132,
        "get_paged_mqa_logits_metadata": plan,
        "fp8_paged_mqa_logits": logits,
    }
    inputs = indexer_inputs(9)
    module = peer("dsa_indexer", "deep_gemm", "deep_gemm", **deep_gemm)

    def judge():
        output = dsa_indexer.empty_output(len(SEQ_LENS))
        module.run(*inputs.values(), output)
        assert_selects(output, inputs)
        return len(planned)

    assert [judge(), judge()] == [1, 1]
    inputs["seq_lens"][0] = 33
    assert judge() == 2
    inputs["seq_lens"] = inputs["seq_lens"].clone()
    assert judge() == 3


def test_a_narrow_block_table_of_deep_gemm(peer):
    """Fewer columns than 2048: the rest of the output is padding."""
    module = peer("dsa_indexer", "deep_gemm", "deep_gemm")
    logits = torch.arange(192.0).view(1, 192)
    output = torch.zeros(1, 2048, dtype=torch.int32)
    table = torch.tensor([[7, 3, 5]], dtype=torch.int32)
    module.select_tokens(logits, torch.tensor([130], dtype=torch.int32), table, output)
    assert output[0, :3].tolist() == [5 * 64 + 1, 5 * 64, 3 * 64 + 63]
    assert output[0, 129] == 7 * 64
    assert (output[0, 130:] == -1).all()


def test_dsa_indexer_of_flashinfer(peer):
    def transform(scores, table, lengths, k):
        assert scores.shape == table.shape
        result = torch.full((len(lengths), k), -1, dtype=torch.int32)
        for row, length in enumerate(lengths.tolist()):
            chosen = scores[row, :length].topk(min(k, length)).indices
            result[row, : len(chosen)] = table[row][chosen]
        return result

    inputs, output = indexer_inputs(10), dsa_indexer.empty_output(len(SEQ_LENS))
    module = peer("dsa_indexer", "flashinfer", "flashinfer", top_k_page_table_transform=transform)
    module.run(*inputs.values(), output)
    assert_selects(output, inputs)


# Attention


def attend(query, keys, values, scale):
    logits = query.float() @ keys.float().t() * scale
    lse = torch.logsumexp(logits, dim=-1) / torch.log(torch.tensor(2.0))
    return (torch.softmax(logits, dim=-1) @ values.float()).bfloat16(), lse


class PagedAttention:
    """FlashInfer's wrapper: rows of pages as plan() was told, one query each."""

    plans = 0

    def __init__(self, workspace):
        assert workspace.numel() == 2**27

    def plan(self, rows, begin, pages, lengths, *sizes):
        type(self).plans += 1
        assert rows.tolist() == list(range(len(lengths) + 1))
        assert sizes[:5] == (16, 512, 64, 1, False)
        self.begin, self.pages, self.lengths, self.scale = begin, pages, lengths, sizes[5]

    def run(self, q_nope, q_pe, ckv, kpe, out, lse, return_lse):
        assert return_lse
        for row, (begin, length) in enumerate(zip(self.begin, self.lengths, strict=False)):
            pages = self.pages[begin : begin + length]
            assert (pages >= 0).all()
            keys = torch.cat([ckv[pages, 0], kpe[pages, 0]], dim=1)
            query = torch.cat([q_nope[row], q_pe[row]], dim=1)
            out[row], lse[row] = attend(query, keys, ckv[pages, 0], self.scale)


def test_dsa_attention_of_flashinfer_plans_once_for_each_index_tensor(peer, monkeypatch):
    monkeypatch.setattr(PagedAttention, "plans", 0)
    mla = SimpleNamespace(BatchMLAPagedAttentionWrapper=PagedAttention)
    module = peer("dsa_attention", "flashinfer", "flashinfer", mla=mla)
    inputs, outputs = attention_inputs(), dsa_attention.empty_outputs(4)
    for _ in range(2):
        module.run(*inputs.values(), *outputs)
        assert_attends(outputs, inputs)
        assert PagedAttention.plans == 1
    inputs["sparse_indices"][3, 2000] = 5
    module.run(*inputs.values(), *outputs)
    assert PagedAttention.plans == 2
    inputs = inputs | {"sparse_indices": inputs["sparse_indices"][:, :2048].clone()}
    module.run(*inputs.values(), *outputs)
    assert PagedAttention.plans == 3
    assert_attends(outputs, inputs)


def test_dsa_attention_of_flash_mla_joins_each_pair_of_caches_once(peer):
    seen = []

    def sparse(query, cache, ids, scale, width, use_legacy, return_log2_lse):
        assert query.shape[1:] == (64, 576) and cache.shape[1:] == (1, 576) and width == 512
        assert use_legacy and return_log2_lse
        assert not query[:, 16:].any()
        seen.append(cache)
        out = torch.zeros(len(query), 64, 512, dtype=torch.bfloat16)
        lse = torch.full((len(query), 64), -torch.inf)
        for row in range(len(query)):
            keys = cache[ids[row, 0][ids[row, 0] != -1], 0]
            if len(keys):
                out[row], lse[row] = attend(query[row], keys, keys[:, :512], scale)
        return out, None, lse

    module = peer("dsa_attention", "flash_mla", "flash_mla", flash_mla_sparse_fwd=sparse)
    inputs, outputs = attention_inputs(), dsa_attention.empty_outputs(4)
    for change in (lambda: None, lambda: None, lambda: inputs["kpe_cache"].mul_(2)):
        change()
        module.run(*inputs.values(), *outputs)
        assert_attends(outputs, inputs)
    inputs["ckv_cache"] = inputs["ckv_cache"].clone()
    module.run(*inputs.values(), *outputs)
    assert_attends(outputs, inputs)
    assert [cache is seen[0] for cache in seen] == [True, True, False, False]
    assert seen[2] is not seen[3]


def test_the_padded_query_of_flash_mla_is_written_anew(peer):
    """One buffer for each number of tokens; nothing of the call before is left in it."""
    seen = []

    def sparse(query, *_, **__):
        seen.append((query, query.clone()))
        shape = (len(query), 64)
        return torch.zeros(*shape, 512, dtype=torch.bfloat16), None, torch.zeros(shape)

    module = peer("dsa_attention", "flash_mla", "flash_mla", flash_mla_sparse_fwd=sparse)
    for num_tokens, seed in ((3, 20), (3, 21), (2, 22), (3, 23)):
        inputs = dsa_attention.random_inputs(num_tokens, 40, seed=seed)
        module.run(*inputs.values(), *dsa_attention.empty_outputs(num_tokens))
        query = seen[-1][1]
        assert torch.equal(query[:, :16], torch.cat([inputs["q_nope"], inputs["q_pe"]], dim=-1))
        assert query.shape == (num_tokens, 64, 576) and not query[:, 16:].any()
    assert seen[0][0] is seen[1][0]
    assert seen[3][0] is not seen[1][0]


# MoE: 4 local experts from expert 32 on, hidden size 256, intermediate size 128


def moe_inputs(num_tokens, seed):
    """The first half of the tokens favours the local experts."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    def codes(*shape):
        return normal(*shape).clamp(-2, 2).to(torch.float8_e4m3fn)

    logits = normal(num_tokens, moe.EXPERTS)
    logits[: num_tokens // 2 + 1, OFFSET : OFFSET + NUM_LOCAL] += 4.0
    return {
        "routing_logits": logits,
        "routing_bias": (0.1 * normal(moe.EXPERTS)).bfloat16(),
        "hidden_states": codes(num_tokens, HIDDEN),
        "hidden_states_scale": normal(HIDDEN // BLOCK, num_tokens),
        "gemm1_weights": codes(NUM_LOCAL, 2 * INTERMEDIATE, HIDDEN),
        "gemm1_weights_scale": normal(NUM_LOCAL, 2 * INTERMEDIATE // BLOCK, HIDDEN // BLOCK),
        "gemm2_weights": codes(NUM_LOCAL, HIDDEN, INTERMEDIATE),
        "gemm2_weights_scale": normal(NUM_LOCAL, HIDDEN // BLOCK, INTERMEDIATE // BLOCK),
        "local_expert_offset": OFFSET,
        "routed_scaling_factor": 2.5,
    }


def widen(codes, scales):
    """codes [N, K], scales [N / 128 or N, K / 128]. Returns fp32."""
    scales = scales.repeat_interleave(BLOCK, dim=1)
    return codes.float() * scales.repeat_interleave(codes.shape[0] // scales.shape[0], dim=0)


def expert_output(inputs, token, local, first_half_is_gate=False):
    x = widen(inputs["hidden_states"], inputs["hidden_states_scale"].t())[token]
    w13 = widen(inputs["gemm1_weights"][local], inputs["gemm1_weights_scale"][local])
    up, gate = (w13 @ x).chunk(2)
    if first_half_is_gate:
        up, gate = gate, up
    w2 = widen(inputs["gemm2_weights"][local], inputs["gemm2_weights_scale"][local])
    return w2 @ (torch.nn.functional.silu(gate) * up)


def expected_moe(inputs):
    chosen = moe.select(inputs["routing_logits"], inputs["routing_bias"])
    weights = moe.weigh(inputs["routing_logits"], chosen, inputs["routed_scaling_factor"])
    output = torch.zeros(len(chosen), HIDDEN)
    for token, (experts, factors) in enumerate(zip(chosen, weights, strict=True)):
        for expert, factor in zip(experts, factors, strict=True):
            if OFFSET <= expert < OFFSET + NUM_LOCAL:
                local = int(expert) - OFFSET
                output[token] += float(factor) * expert_output(inputs, token, local)
    return output


def assert_mixes(output, inputs, share):
    """Errors are small beside their row; rows without a local expert are zero."""
    want = expected_moe(inputs)
    scale = want.square().mean(1, keepdim=True).sqrt()
    assert 0 < (scale == 0).sum() < len(want)
    assert ((output.float() - want).abs() <= share * scale).all()


def grouped_product(a, b, result, grouped_layout):
    """DeepGEMM's: rows of a block belong to one expert, -1 marks rows that are not computed."""
    (codes, scales), (weights, weight_scales) = a, b
    assert codes.shape[0] % BLOCK == 0 and scales.dtype == torch.float32
    assert grouped_layout.dtype == torch.int32
    result.fill_(float("nan"))
    for block in range(0, codes.shape[0], BLOCK):
        rows = slice(block, block + BLOCK)
        experts = set(grouped_layout[rows].tolist()) - {-1}
        assert len(experts) <= 1
        for expert in experts:
            assert grouped_layout[block] == expert
            left = widen(codes[rows], scales[rows])
            result[rows] = (left @ widen(weights[expert], weight_scales[expert]).t()).bfloat16()


@pytest.mark.parametrize("num_tokens", [1, 6, 300, 1025])
def test_moe_of_deep_gemm(peer, num_tokens):
    module = peer(
        "moe",
        "deep_gemm",
        "deep_gemm",
        get_mk_alignment_for_contiguous_layout=lambda: BLOCK,
        m_grouped_fp8_gemm_nt_contiguous=grouped_product,
    )
    inputs = moe_inputs(num_tokens + 1, seed=11)
    inputs["routing_logits"][-1, OFFSET : OFFSET + NUM_LOCAL] = -20.0
    output = torch.full((num_tokens + 1, HIDDEN), float("nan"), dtype=torch.bfloat16)
    module.run(*inputs.values(), output)
    assert_mixes(output, inputs, share=0.15)


class MegaKernel:
    """DeepGEMM's mega kernel over one rank's buffer, the gate first in W13."""

    def __init__(self):
        self.layouts = self.capacities = 0

    def transform(self, first, second):
        self.layouts += 1
        return first, second

    def buffer(self, ranks, experts, capacity, top_k, hidden, intermediate, is_fp8, activation):
        assert (ranks, experts, top_k, hidden) == (1, NUM_LOCAL, TOP_K, HIDDEN)
        assert (intermediate, is_fp8, activation, capacity % 64) == (128, True, "swiglu", 0)
        self.capacities += 1
        views = [
            torch.zeros(capacity, hidden, dtype=torch.float8_e4m3fn),
            torch.zeros(capacity, hidden // BLOCK),
            torch.zeros(capacity, top_k, dtype=torch.int64),
            torch.zeros(capacity, top_k),
        ]
        self.views = views
        return 64, lambda buffer: views

    def run(self, output, first, second, symmetric, **settings):
        assert settings["activation_clamp"] is None
        codes, scales, experts, factors = self.views
        assert symmetric.num_max_tokens_per_rank >= len(output)
        for divided in (scales[: len(output)], first[1], second[1]):
            assert (divided != 0).all()  # the kernel divides its accumulator by each
        inputs = {
            "hidden_states": codes,
            "hidden_states_scale": scales.t(),
            "gemm1_weights": first[0],
            "gemm1_weights_scale": first[1],
            "gemm2_weights": second[0],
            "gemm2_weights_scale": second[1],
        }
        for token in range(len(output)):
            total = torch.zeros(HIDDEN)
            for local, factor in zip(experts[token].tolist(), factors[token], strict=True):
                assert -1 <= local < NUM_LOCAL
                if local >= 0:
                    total += factor * expert_output(inputs, token, local, first_half_is_gate=True)
            output[token] = total


@pytest.fixture
def mega(peer, monkeypatch):
    """The peer over a stand-in kernel, and a function that judges a number of tokens with it."""
    kernel = MegaKernel()
    native = SimpleNamespace(
        get_token_alignment_for_mega_moe=lambda: 64,
        get_symm_buffer_size_for_sm90_mega_moe=kernel.buffer,
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    module = peer(
        "moe",
        "deep_gemm_mega",
        "deep_gemm",
        _C=native,
        _from_dlpack_if_needed=lambda tensor, dtype=None: tensor,
        transform_weights_for_mega_moe_sm90=kernel.transform,
        fp8_mega_moe=kernel.run,
    )

    def judge(inputs):
        num_tokens = len(inputs["routing_logits"])
        inputs["routing_logits"][-1, OFFSET : OFFSET + NUM_LOCAL] = -20.0
        output = torch.full((num_tokens, HIDDEN), float("nan"), dtype=torch.bfloat16)
        module.run(*inputs.values(), output)
        assert_mixes(output, inputs, share=0.02)
        return kernel.layouts, kernel.capacities

    return judge


def weights_of(inputs):
    return {name: value for name, value in inputs.items() if name.startswith("gemm")}


def test_moe_of_deep_gemm_mega_prepares_weights_once(mega):
    kept = weights_of(moe_inputs(1, seed=12))

    def judge(num_tokens, **replaced):
        return mega(moe_inputs(num_tokens, seed=13) | kept | replaced)

    assert judge(6) == (1, 1)
    assert judge(64) == (1, 1)
    assert judge(65) == (1, 2)
    kept["gemm2_weights_scale"].mul_(2.0)
    assert judge(6) == (2, 3)
    assert judge(6, gemm1_weights=kept["gemm1_weights"].clone()) == (3, 4)


@pytest.mark.parametrize("is_kept", [True, False], ids=["same weights", "new weights"])
@pytest.mark.parametrize("sizes", [(3, 200, 3), (200, 3, 200)], ids=str)
def test_workloads_of_deep_gemm_mega_leave_each_other_alone(mega, sizes, is_kept):
    """A warm worker judges large after small and small after large."""
    kept = weights_of(moe_inputs(1, seed=15)) if is_kept else {}
    for seed, num_tokens in enumerate(sizes, 16):
        mega(moe_inputs(num_tokens, seed=seed) | kept)


def test_scales_of_zero_of_deep_gemm_mega(mega):
    """Blocks of scale 0 add nothing; the kernel, which divides by scales, sees none."""
    inputs = moe_inputs(20, seed=19)
    inputs["hidden_states_scale"][1, 2] = 0.0
    inputs["gemm1_weights_scale"][0, 1, 0] = -0.0
    inputs["gemm2_weights_scale"][3, 1, 0] = 0.0
    before = {name: value.clone() for name, value in inputs.items() if torch.is_tensor(value)}
    mega(inputs)
    del before["routing_logits"]
    for name, value in before.items():
        assert torch.equal(inputs[name].float(), value.float())


def test_a_mega_kernel_for_another_gpu_says_why(peer, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (10, 0))
    module = peer("moe", "deep_gemm_mega", "deep_gemm")
    inputs = moe_inputs(2, seed=14)
    with pytest.raises(RuntimeError, match="the one for sm_100 takes FP4 weights"):
        module.run(*inputs.values(), torch.empty(2, HIDDEN, dtype=torch.bfloat16))
