#!/usr/bin/env python3
"""Times PyTorch's cuDNN and flash attention on the prefill cases of docs/performance/cuda-prefill.md.

The same way as bench/cuda/prefill_bench.cu: bf16 normal data, the second-level cache flushed before
each run, median of the runs, half a
second of rest before each row. Needs a CUDA build of PyTorch and nothing of Attune's. With --json
it prints lines for attention_table.py.
"""

import json
import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

PREFILL = "gqa/prefill/bf16/hd128/gqa4/page64/"
NAMES = {  # of attune bench, where it has the case
    "causal 32/8 d128 16x1k": PREFILL + "b16x1024",
    "causal 32/8 d128 4x4k": PREFILL + "b4x4096",
    "causal 32/8 d128 1x16k": PREFILL + "b1x16384",
    "causal 32/8 d64 1x16k": "gqa/prefill/bf16/hd64/gqa4/page64/b1x16384",
    "causal 8/8 d256 1x16k": "gqa/prefill/bf16/hd256/gqa1/page64/b1x16384",
}
CASES = [  # name, requests, length, query heads, KV heads, head dim qk, vo, causal
    ("causal 32/8 d128 16x1k", 16, 1024, 32, 8, 128, 128, True),
    ("causal 32/8 d128 4x4k", 4, 4096, 32, 8, 128, 128, True),
    ("causal 32/8 d128 1x16k", 1, 16384, 32, 8, 128, 128, True),
    ("causal 32/8 d64 1x16k", 1, 16384, 32, 8, 64, 64, True),
    ("full 16/16 d128 1x16k", 1, 16384, 16, 16, 128, 128, False),
    ("causal 32/32 d64 1x16k", 1, 16384, 32, 32, 64, 64, True),
    ("causal 8/8 d256 1x16k", 1, 16384, 8, 8, 256, 256, True),
    ("causal 128/128 192/128 2x8k", 2, 8192, 128, 128, 192, 128, True),
]
BACKENDS = [("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)]
PEERS = {"cudnn": "cuDNN", "flash": "FlashAttention-2"}
REPEATS = 9


def tensor(requests, length, heads, dim):
    rows = torch.randn(requests, length, heads, dim, device="cuda", dtype=torch.bfloat16)
    return rows.transpose(1, 2)


def median_ms(call, flush):
    time.sleep(0.5)
    times = []
    for i in range(REPEATS + 2):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main():
    as_json = "--json" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--json"]
    versions = (torch.__version__, torch.backends.cudnn.version(), torch.cuda.get_device_name())
    print(*versions, file=sys.stderr)
    flush = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ms = median_ms(lambda: a @ b, flush)
    print(
        f"matrix product 8192: {2 * 8192**3 / ms * 1e-9:.1f} TFLOP/s", file=sys.stderr
    )
    for name, requests, length, heads, kv_heads, dqk, dvo, causal in CASES:
        if words and not any(word in name for word in words):
            continue
        q = tensor(requests, length, heads, dqk)
        k = tensor(requests, length, kv_heads, dqk)
        v = tensor(requests, length, kv_heads, dvo)
        flop = 2.0 * requests * length * length * heads * (dqk + dvo) * (0.5 if causal else 1.0)
        for word, backend in BACKENDS:
            try:
                with sdpa_kernel(backend):
                    ms = median_ms(
                        lambda: scaled_dot_product_attention(
                            q, k, v, is_causal=causal, enable_gqa=heads != kv_heads
                        ),
                        flush,
                    )
                if not as_json:
                    print(f"{name:28} {word:6} {ms * 1e3:9.1f} us {flop / ms * 1e-9:6.1f} TFLOP/s")
                elif name in NAMES:
                    print(json.dumps({"case": NAMES[name], "peer": PEERS[word], "ms": ms}))
            except RuntimeError as error:
                print(
                    f"{name:28} {word:6} refused: {str(error).splitlines()[0]}", file=sys.stderr
                )


if __name__ == "__main__":
    main()
