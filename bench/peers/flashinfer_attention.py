#!/usr/bin/env python3
"""Times FlashInfer (PyPI: flashinfer-python) on the softmax cases of docs/performance/h200.md.

Planned ahead, as serving does. Forms: prefill by its kernels for Hopper, over pages and over
contiguous keys; decode on CUDA cores, on tensor cores, the same as a graph, and by xqa; latents by
its kernels for Hopper and for Ampere. The first use of a kernel compiles it with nvcc, for minutes.
Needs a CUDA build of PyTorch, FlashInfer and nothing of Attune's.
"""

import flashinfer
import torch

from cuda_peer import check, in_graph, int32, normal, page_table, run
from fa3_attention import CASES as SOFTMAX
from flashmla import CASES as LATENT

PEER = "FlashInfer"
WORKSPACE_BYTES = 512 << 20
CASES = [case for case in SOFTMAX if str(case).startswith("gqa/")] + LATENT


def workspace():
    return torch.zeros(WORKSPACE_BYTES, device="cuda", dtype=torch.uint8)


def steps(case, width):
    """Where each request's `width` entries begin."""
    return int32(*range(0, (case.batch + 1) * width, width))


class Paged:
    """A case's queries, keys and values in pages, and the lists that FlashInfer reads."""

    def __init__(self, case):
        self.table = page_table(case)
        self.indices = self.table.flatten()
        self.indptr = steps(case, self.table.shape[1])
        self.last_page = int32(*[(case.length - 1) % case.page + 1] * case.batch)
        self.lengths = int32(*[case.length] * case.batch)
        self.q = normal(case.batch * case.queries, case.heads, case.dim_qk)
        # Pages of both must begin equally far apart, which pages of unequal rows do side by side.
        both = (case.dim_qk, case.dim_vo)
        rows = self.indices.numel(), case.page, case.kv_heads
        if case.dim_qk == case.dim_vo:
            self.keys, self.values = (normal(*rows, dim, dtype=case.dtype) for dim in both)
        else:
            self.keys, self.values = normal(*rows, sum(both), dtype=case.dtype).split(both, -1)

    def checked(self, case, call, tolerance=2e-2):
        own = self.table[-1].long()
        keys, values = self.keys[own].flatten(0, 1), self.values[own].flatten(0, 1)
        check(call()[-1], self.q[-1], keys, values, case.scale, tolerance)
        return call


def types_of(case):
    return {"q_data_type": torch.bfloat16, "kv_data_type": case.dtype, "sm_scale": case.scale}


def paged_prefill(case):
    x = Paged(case)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", backend="fa3")
    wrapper.plan(
        steps(case, case.length), x.indptr, x.indices, x.last_page, case.heads, case.kv_heads,
        case.dim_qk, case.page, head_dim_vo=case.dim_vo, causal=True, **types_of(case),
    )  # fmt: skip
    return x.checked(case, lambda: wrapper.run(x.q, (x.keys, x.values)))


def contiguous_prefill(case):
    rows = case.batch * case.length
    q = normal(rows, case.heads, case.dim_qk)
    keys, values = (normal(rows, case.kv_heads, dim) for dim in (case.dim_qk, case.dim_vo))
    begins = steps(case, case.length)
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(), "NHD", backend="fa3")
    wrapper.plan(
        begins, begins, case.heads, case.kv_heads, case.dim_qk, head_dim_vo=case.dim_vo,
        causal=True, **types_of(case),
    )  # fmt: skip

    def call():
        return wrapper.run(q, keys, values)

    last = slice(-case.length, None)
    check(call()[-1], q[-1], keys[last], values[last], case.scale)
    return call


def decode(case, tensor_cores, graph):
    x = Paged(case)
    lists = {}
    if graph:
        lists = {
            "use_cuda_graph": True,
            "paged_kv_indptr_buffer": torch.empty_like(x.indptr),
            "paged_kv_indices_buffer": torch.empty_like(x.indices),
            "paged_kv_last_page_len_buffer": torch.empty_like(x.last_page),
        }
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace(), "NHD", use_tensor_cores=tensor_cores, backend="fa2", **lists
    )
    wrapper.plan(
        x.indptr, x.indices, x.last_page, case.heads, case.kv_heads, case.dim_qk, case.page,
        **types_of(case),
    )  # fmt: skip
    call = x.checked(case, lambda: wrapper.run(x.q, (x.keys, x.values)))
    return in_graph(call) if graph else call


def xqa(case):
    x = Paged(case)
    scratch = workspace()
    out = torch.empty_like(x.q)
    lengths = x.lengths.to(torch.uint32)

    def call():
        return flashinfer.decode.xqa_batch_decode_with_kv_cache(
            x.q, (x.keys, x.values), scratch, x.table, lengths, case.length,
            bmm1_scale=case.scale, out=out,
        )  # fmt: skip

    return x.checked(case, call, 8e-2)  # over keys in e4m3 its products are in e4m3


class Latent:
    """Latents in pages: their first columns, which are values too, and rotated ones apart."""

    def __init__(self, case):
        self.table = page_table(case)
        self.indices = self.table.flatten()
        self.indptr = steps(case, self.table.shape[1])
        self.lengths = int32(*[case.length] * case.batch)
        rope = case.dim_qk - case.dim_vo
        dims = (case.dim_vo, rope)
        self.q = [normal(case.batch * case.queries, case.heads, dim) for dim in dims]
        self.cache = [
            normal(self.indices.numel(), case.page, dim, dtype=case.dtype) for dim in dims
        ]


def latent(case, backend, graph=False):
    x = Latent(case)
    lists = {}
    if graph:
        lists = {
            "use_cuda_graph": True,
            "qo_indptr": torch.empty_like(x.indptr),
            "kv_indptr": torch.empty_like(x.indptr),
            "kv_indices": torch.empty_like(x.indices),
            "kv_len_arr": torch.empty_like(x.lengths),
        }
    wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace(), backend=backend, **lists)
    wrapper.plan(
        steps(case, case.queries), x.indptr, x.indices, x.lengths, case.heads, case.dim_vo,
        case.dim_qk - case.dim_vo, case.page, True, case.scale, torch.bfloat16, case.dtype,
    )  # fmt: skip
    scales = {"ckv_scale": 1.0, "kpe_scale": 1.0} if case.dtype == torch.float8_e4m3fn else {}

    def call():
        return wrapper.run(*x.q, *x.cache, **scales)

    keys = torch.cat([part[x.table[-1].long()].flatten(0, 1).bfloat16() for part in x.cache], -1)
    check(
        call()[-1], torch.cat(x.q, -1)[-1], keys[:, None], keys[:, None, : case.dim_vo], case.scale
    )
    return in_graph(call) if graph else call


def forms_of(case):
    """(form, a function that makes a checked call)"""
    if case.latent:
        yield "fa3", lambda: latent(case, "fa3")
        if case.dtype == torch.bfloat16:
            yield "fa3, graph", lambda: latent(case, "fa3", graph=True)
            yield "fa2", lambda: latent(case, "fa2")
    elif case.prefill:
        yield f"pages of {case.page}", lambda: paged_prefill(case)
        yield "contiguous", lambda: contiguous_prefill(case)
    else:
        yield "CUDA cores", lambda: decode(case, False, False)
        yield "tensor cores", lambda: decode(case, True, False)
        yield "tensor cores, graph", lambda: decode(case, True, True)
        if case.page >= 16:
            yield "xqa", lambda: xqa(case)


@torch.inference_mode()
def main():
    run(CASES, lambda case: [(PEER, form, make) for form, make in forms_of(case)])


if __name__ == "__main__":
    main()
