#!/usr/bin/env python3
"""Times PyTorch's cuDNN and flash attention (FlashAttention-2), which read contiguous keys, on the
cases of docs/performance/h200.md and on those that bench/cuda/prefill_bench.cu times beside them
(docs/performance/cuda-prefill.md).

Needs a CUDA build of PyTorch and nothing of Attune's.
"""

import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from cuda_peer import Case, check, median_ms, normal, run
from fa3_attention import CASES as SOFTMAX

BF16 = torch.bfloat16
PRODUCT = 8192
FULL = "full 16/16 d128 1x16k"  # every query sees every key; all others are causal
CASES = [name for name in SOFTMAX if str(name).startswith("gqa/") and "/bf16/" in name] + [
    Case(FULL, False, True, BF16, 128, 128, 16, 16, 0, 1, 16384),
    Case("causal 32/32 d64 1x16k", False, True, BF16, 64, 64, 32, 32, 0, 1, 16384),
    Case("causal 128/128 192/128 2x8k", False, True, BF16, 192, 128, 128, 128, 0, 2, 8192),
]
PEERS = {
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "FlashAttention-2": SDPBackend.FLASH_ATTENTION,
}


def rows(case, tokens, heads, dim):
    return normal(case.batch, tokens, heads, dim).transpose(1, 2)


def call_of(case, backend):
    q = rows(case, case.queries, case.heads, case.dim_qk)
    k = rows(case, case.length, case.kv_heads, case.dim_qk)
    v = rows(case, case.length, case.kv_heads, case.dim_vo)
    causal = case.prefill and case.name != FULL

    def call():
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=case.heads != case.kv_heads
            )

    check(call()[-1, :, -1], q[-1, :, -1], k[-1].transpose(0, 1), v[-1].transpose(0, 1), case.scale)
    return call


@torch.inference_mode()
def main():
    print(
        torch.__version__, torch.backends.cudnn.version(), torch.cuda.get_device_name(),
        file=sys.stderr,
    )  # fmt: skip
    a, b = normal(PRODUCT, PRODUCT), normal(PRODUCT, PRODUCT)
    rate = 2 * PRODUCT**3 / median_ms(lambda: a @ b) * 1e-9
    print(f"matrix product {PRODUCT}: {rate:.1f} TFLOP/s", file=sys.stderr)

    def forms(case):
        for peer, backend in PEERS.items():
            yield peer, "contiguous", lambda b=backend: call_of(case, b)

    run(CASES, forms)


if __name__ == "__main__":
    main()
