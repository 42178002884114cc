#!/usr/bin/env python3
"""Times FlashAttention-3 on the softmax cases of docs/performance/h200.md.

From two packages of PyPI: `vllm`, whose wheel has an FA3 that reads pages (nothing else of vLLM is
loaded), and `fa3-fwd`, which is upstream's for contiguous keys. Splits by FA3's own rule, its
schedule made ahead. Keys in e4m3 take queries in e4m3 there. Needs the PyTorch that
vLLM's wheel asks for and nothing of Attune's.
"""

import importlib.util
import pathlib

import torch

from cuda_peer import TWO_TOKENS, check, int32, normal, page_table, run

CASES = [
    "gqa/prefill/bf16/hd128/gqa4/page64/b16x1024",
    "gqa/prefill/bf16/hd128/gqa4/page64/b4x4096",
    "gqa/prefill/bf16/hd128/gqa4/page64/b1x16384",
    "gqa/prefill/bf16/hd64/gqa4/page64/b1x16384",
    "gqa/prefill/bf16/hd256/gqa1/page64/b1x16384",
    "gqa/prefill/bf16/hd192-128/gqa16/page64/b2x8192",
    "gqa/decode/bf16/hd128/gqa4/page1/b64x8192",
    "gqa/decode/bf16/hd128/gqa4/page16/b64x8192",
    "gqa/decode/bf16/hd128/gqa4/page64/b64x8192",
    "gqa/decode/bf16/hd128/gqa8/page64/b16x32768",
    "gqa/decode/bf16/hd128/gqa4/page64/b256x1024",
    "gqa/decode/bf16/hd128/gqa4/page64/b1x32768",
    "gqa/decode/fp8_e4m3/hd128/gqa8/page64/b128x2048",
    "mla/decode/bf16/hd576/gqa128/page64/b128x4096",
    "mla/decode/bf16/hd576/gqa16/page64/b128x8192",
    "mla/decode/bf16/hd576/gqa16/page64/b64x16384",
    "mla/decode/bf16/hd576/gqa128/page64/b1x65536",
    "mla/decode/bf16/hd576/gqa16/page64/b1x4096",
    TWO_TOKENS,
]
PEER = "FlashAttention-3"
GIVEN = {  # arguments that have no default in the schema and are not tensors
    "is_causal": True,
    "window_size_left": -1,
    "window_size_right": -1,
    "softcap": 0.0,
    "is_rotary_interleaved": True,
    "num_splits": 0,
    "sm_margin": 0,
    "cp_world_size": 1,
    "cp_rank": 0,
}


def load(package, *path):
    """The operators of the library by itself: importing vllm would start all of it."""
    folder = pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])
    torch.ops.load_library(str(folder.joinpath(*path)))


def call_by_schema(operator, arguments):
    """`operator` with those of `arguments` that it has."""
    wanted = operator.default._schema.arguments
    return operator(
        **{
            a.name: arguments.get(a.name)
            for a in wanted
            if a.name in arguments or not a.has_default_value()
        }
    )


def prepared(fa3, case, arguments, page):
    """The schedule FA3 would make at the front of each call: planned ahead, as serving does."""
    q, v = arguments["q"], arguments["v"]
    planned = {
        **GIVEN,
        "batch_size": case.batch,
        "max_seqlen_q": case.queries,
        "max_seqlen_k": case.length,
        "num_heads": case.heads,
        "num_heads_k": case.kv_heads,
        "headdim": q.shape[-1],
        "headdim_v": v.shape[-1],
        "qkv_dtype": q.dtype,
        "seqused_k": arguments["seqused_k"],
        "page_size": page,
        "max_seqlen_k_new": 0,
        "has_softcap": False,
    }
    return call_by_schema(fa3.get_scheduler_metadata, planned)


def call_of(fa3, case, paged):
    dtype = case.dtype
    q = normal(case.batch, case.queries, case.heads, case.dim_qk, dtype=dtype)
    arguments = {**GIVEN, "q": q, "softmax_scale": case.scale}
    if paged:
        table = page_table(case)
        keep = (table.numel(), case.page)
        arguments["page_table"] = table
    else:
        keep = (case.batch, case.length)
    if case.latent:  # values are the first columns of keys, FA3 takes the two parts of both apart
        cache = normal(*keep, 1, case.dim_qk)
        keys, values = cache, cache[..., : case.dim_vo]
        arguments |= {
            "q": q[..., case.dim_vo :].contiguous(),
            "q_v": q[..., : case.dim_vo].contiguous(),
            "k": cache[..., case.dim_vo :],
            "v": values,
        }
    else:
        keys = normal(*keep, case.kv_heads, case.dim_qk, dtype=dtype)
        values = normal(*keep, case.kv_heads, case.dim_vo, dtype=dtype)
        arguments |= {"k": keys, "v": values}
    if paged or not case.prefill:
        arguments["seqused_k"] = int32(*[case.length] * case.batch)
        page = case.page if paged else None
        arguments["scheduler_metadata"] = prepared(fa3, case, arguments, page)

    def call():
        return call_by_schema(fa3.fwd, arguments)[0]

    own = (lambda t: t[table[-1].long()].flatten(0, 1)) if paged else (lambda t: t[-1])
    loose = 8e-2 if dtype == torch.float8_e4m3fn else 2e-2  # probabilities are in e4m3 too
    check(call()[-1, -1], q[-1, -1], own(keys), own(values), case.scale, loose)
    return call


@torch.inference_mode()
def main():
    load("vllm", "vllm_flash_attn", "_vllm_fa3_C.abi3.so")
    load("fa3_fwd", "_C.abi3.so")
    pages, contiguous = torch.ops._vllm_fa3_C, torch.ops.fa3_fwd

    def forms(case):
        yield PEER, f"pages of {case.page}", lambda: call_of(pages, case, True)
        yield PEER, "contiguous", lambda: call_of(contiguous, case, False)

    run(CASES, forms)


if __name__ == "__main__":
    main()
