#!/usr/bin/env python3
"""Times FlashMLA on the latent decode cases of docs/performance/h200.md.

From vLLM's wheel (PyPI), which carries its kernels; nothing else of vLLM is loaded. The schedule is
made by the first call and kept, as serving does. It has no dense kernel for the fp8 cache of 656
bytes a token on Hopper; vLLM's wheel has one for keys *and queries* in e4m3 with one scale (576
bytes a token): q_fp8_e4m3. Needs the PyTorch that the wheel asks for and
nothing of Attune's.
"""

import importlib.util
import pathlib

import torch

from cuda_peer import TWO_TOKENS, check, int32, normal, page_table, run

CASES = [
    "mla/decode/bf16/hd576/gqa128/page64/b128x4096",
    "mla/decode/bf16/hd576/gqa16/page64/b128x8192",
    "mla/decode/bf16/hd576/gqa16/page64/b64x16384",
    "mla/decode/bf16/hd576/gqa128/page64/b1x65536",
    "mla/decode/bf16/hd576/gqa16/page64/b1x4096",
    TWO_TOKENS,
    "mla/decode/q_fp8_e4m3/hd576/gqa128/page64/b128x4096",
    "mla/decode/q_fp8_e4m3/hd576/gqa16/page64/b128x8192",
]


def load(name):
    """The operators of the library by itself: importing vllm would start all of it."""
    folder = pathlib.Path(importlib.util.find_spec("vllm").submodule_search_locations[0])
    torch.ops.load_library(str(folder / f"{name}.abi3.so"))
    return getattr(torch.ops, name)


def call_of(flashmla, flashmla_fp8, case):
    q = normal(case.batch, case.queries, case.heads, case.dim_qk, dtype=case.dtype)
    table = page_table(case)
    cache = normal(table.numel(), case.page, 1, case.dim_qk, dtype=case.dtype)
    lengths = int32(*[case.length] * case.batch)
    if case.dtype == torch.float8_e4m3fn:
        schedule = flashmla_fp8.get_mla_decoding_metadata_dense_fp8(
            lengths, case.heads * case.queries, 1
        )
        one = torch.ones(1, device="cuda")

        def call():
            return flashmla_fp8.fwd_kvcache_mla_fp8(
                q, cache, case.dim_vo, lengths, table, case.scale, True, *schedule, one, one
            )[0]
    else:

        def run_with(schedule):
            return flashmla.dense_decode_fwd(
                q, cache, case.dim_vo, lengths, table, case.scale, True, *schedule, None
            )

        schedule = run_with((None, None))[2:]

        def call():
            return run_with(schedule)[0]

    own = cache[table[-1].long()].flatten(0, 1)
    loose = 8e-2 if case.dtype == torch.float8_e4m3fn else 2e-2
    check(call()[-1, -1], q[-1, -1], own, own[..., : case.dim_vo], case.scale, loose)
    return call


@torch.inference_mode()
def main():
    flashmla, flashmla_fp8 = load("_flashmla_C"), load("_flashmla_extension_C")

    def forms(case):
        fp8 = case.dtype == torch.float8_e4m3fn
        yield (
            "FlashMLA", "vLLM's for queries in e4m3" if fp8 else "pages of 64",
            lambda: call_of(flashmla, flashmla_fp8, case),
        )  # fmt: skip

    run(CASES, forms)


if __name__ == "__main__":
    main()
