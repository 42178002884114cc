#!/usr/bin/env python3
"""Times flash-linear-attention (PyPI) on the linear cases of docs/performance/cuda-linear.md.

The same way as bench/cuda/linear_bench.cu times "kernels": bf16 data, prepared rows without the
convolution, the second-level cache flushed before each run, median of the runs. Needs a CUDA build
of PyTorch, flash-linear-attention and nothing of Attune's.
"""

import statistics
import sys
import time

import torch
import torch.nn.functional as F
from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
from fla.ops.kda import chunk_kda, fused_recurrent_kda
from fla.ops.simple_gla import chunk_simple_gla

REPEATS = 9
DIM = 128


def rows(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def decay(*shape):
    return F.logsigmoid(torch.randn(*shape, device="cuda", dtype=torch.float32) + 2)


def inputs(batch, tokens, heads, by_channel):
    q, k, v = (rows(batch, tokens, heads, DIM) for _ in range(3))
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    g = decay(batch, tokens, heads, DIM) if by_channel else decay(batch, tokens, heads)
    beta = torch.rand(batch, tokens, heads, device="cuda", dtype=torch.bfloat16)
    state = torch.randn(batch, heads, DIM, DIM, device="cuda", dtype=torch.float32)
    return q, k, v, g, beta, state


def delta(operation, by_channel):
    def make(batch, tokens, heads):
        q, k, v, g, beta, state = inputs(batch, tokens, heads, by_channel)
        return lambda: operation(
            q, k, v, g=g, beta=beta, initial_state=state, output_final_state=True
        )

    return make


def lightning(batch, tokens, heads):
    q, k, v, _, _, state = inputs(batch, tokens, heads, False)
    slopes = -torch.arange(1, heads + 1, device="cuda", dtype=torch.float32) / heads
    return lambda: chunk_simple_gla(
        q, k, v, g_gamma=slopes, initial_state=state, output_final_state=True
    )


CASES = [  # name, how, requests, tokens, heads
    # The first call of a case compiles and tunes: kda takes over a minute.
    ("gdn prefill 1x8192, 32 heads", delta(chunk_gated_delta_rule, False), 1, 8192, 32),
    ("gdn prefill 8x4096, 32 heads", delta(chunk_gated_delta_rule, False), 8, 4096, 32),
    ("kda prefill 1x8192, 32 heads", delta(chunk_kda, True), 1, 8192, 32),
    ("kda prefill 8x4096, 32 heads", delta(chunk_kda, True), 8, 4096, 32),
    ("lightning prefill 1x8192, 64 heads", lightning, 1, 8192, 64),
    ("gdn decode b64, 32 heads", delta(fused_recurrent_gated_delta_rule, False), 64, 1, 32),
    ("kda decode b64, 32 heads", delta(fused_recurrent_kda, True), 64, 1, 32),
]


def median_us(call, flush):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    time.sleep(0.3)
    times = []
    for _ in range(REPEATS):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


@torch.inference_mode()
def main():
    import fla

    print(f"flash-linear-attention {fla.__version__}, torch {torch.__version__}")
    flush = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    for name, make, requests, tokens, heads in CASES:
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        try:
            print(f"{name:36} {median_us(make(requests, tokens, heads), flush):9.1f} us", flush=True)
        except Exception as error:  # another version's signature, a kernel that does not compile
            print(f"{name:36} refused: {type(error).__name__}: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
