#!/usr/bin/env python3
"""PyTorch's CPU attention (bf16) on the cases of `attune bench`: 32 query and 8 KV heads of 128, cold
caches, the median of repeats, one line of JSON a case.

torch_cpu_sdpa.py [--threads N] [--seconds S] PHASE:BATCHxLENGTH...    as prefill:1x2048 decode:1x16384

Two calls are timed, grouped heads as they are and K and V repeated beforehand, outside the time
that counts; the faster one is reported. Needs `pip install torch` and nothing of Attune's.
"""

import argparse
import json
import statistics
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

HEADS, KV_HEADS, DIM = 32, 8, 128


def normal(batch, length, heads):
    """Token by token in memory, as projections write it."""
    rows = torch.randn(batch, length, heads, DIM, dtype=torch.bfloat16)
    return rows.transpose(1, 2)


def median_ms(call, flush, seconds):
    times = []
    end = time.perf_counter() + seconds
    call()
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 50):
        flush.sum()
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="+", metavar="PHASE:BATCHxLENGTH")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=1.0, help="of repeats, for each call")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    flush = torch.zeros(64 << 20, dtype=torch.float32)
    for case in options.cases:
        phase, shape = case.split(":")
        batch, length = (int(x) for x in shape.split("x"))
        prefill = phase == "prefill"
        q = normal(batch, length if prefill else 1, HEADS)
        k, v = (normal(batch, length, KV_HEADS) for _ in range(2))
        k_all, v_all = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (k, v))
        calls = {
            "grouped": lambda: scaled_dot_product_attention(
                q, k, v, is_causal=prefill, enable_gqa=True
            ),
            "repeated": lambda: scaled_dot_product_attention(q, k_all, v_all, is_causal=prefill),
        }
        with torch.inference_mode():
            ms = {name: median_ms(call, flush, options.seconds) for name, call in calls.items()}
        best = min(ms, key=ms.get)
        row = {
            "peer": f"torch {torch.__version__}",
            "phase": phase,
            "batch": batch,
            "length": length,
            "threads": options.threads,
            "ms": round(ms[best], 4),
            "call": best,
            "other_ms": round(max(ms.values()), 4),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
