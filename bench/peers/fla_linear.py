#!/usr/bin/env python3
"""Times flash-linear-attention (PyPI) on the linear cases of docs/performance/h200.md and
cuda-linear.md.

Two forms: "layer", what `attune bench` times (short convolution, norms and gates from the layer's
projections, recurrence, states), under its names; and "kernels", what bench/cuda/linear_bench.cu
calls so (the recurrence on prepared rows), under that program's. kda is tried with its gate bounded
below too, where its chunks take other kernels. The first call of a case compiles and tunes: kda took
over a minute. Needs a CUDA build of PyTorch, flash-linear-attention and nothing of Attune's.
"""

import re
import sys

import torch
import torch.nn.functional as F
from fla.modules import ShortConvolution
from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
from fla.ops.kda import chunk_kda, fused_recurrent_kda
from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla

from cuda_peer import median_ms, normal, report

DIM = 128
CONVOLUTION = 4
LOWER_BOUND = -5.0
PEER = "flash-linear-attention"
CHUNKED = {"gdn": chunk_gated_delta_rule, "kda": chunk_kda, "lightning": chunk_simple_gla}
RECURRENT = {
    "gdn": fused_recurrent_gated_delta_rule,
    "kda": fused_recurrent_kda,
    "lightning": fused_recurrent_simple_gla,
}
LAYERS = [  # names of attune bench
    "gdn/prefill/bf16/hd128/h32/b1x8192",
    "gdn/prefill/bf16/hd128/h32/b8x4096",
    "kda/prefill/bf16/hd128/h32/b1x8192",
    "kda/prefill/bf16/hd128/h32/b8x4096",
    "lightning/prefill/bf16/hd128/h64/b1x8192",
    "gdn/decode/bf16/hd128/h32/b64x1",
    "kda/decode/bf16/hd128/h32/b64x1",
]
KERNELS = [  # name, operation, requests, tokens, key heads, value heads
    ("gdn 1x8192, 32 heads", "gdn", 1, 8192, 32, 32),
    ("gdn 8x4096, 32 heads", "gdn", 8, 4096, 32, 32),
    ("gdn 1x8192, 16/32 heads", "gdn", 1, 8192, 16, 32),
    ("kda 1x8192, 32 heads", "kda", 1, 8192, 32, 32),
    ("kda 8x4096, 32 heads", "kda", 8, 4096, 32, 32),
    ("lightning 1x8192, 64 heads", "lightning", 1, 8192, 64, 64),
    ("gdn b64, 32 heads", "gdn", 64, 1, 32, 32),
    ("gdn b64, 16/32 heads", "gdn", 64, 1, 16, 32),
    ("kda b64, 32 heads", "kda", 64, 1, 32, 32),
]


def numbers(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float32)


def operation_of(name, tokens):
    return (CHUNKED if tokens > 1 else RECURRENT)[name]


def state_of(batch, heads):
    state = numbers(batch, heads, DIM, DIM)
    return {"initial_state": state, "output_final_state": True, "state_v_first": True}


def slopes(heads):
    return -torch.arange(1, heads + 1, device="cuda", dtype=torch.float32) / heads


def kernels(name, batch, tokens, key_heads, heads):
    """The recurrence on prepared rows."""
    q, k = (F.normalize(normal(batch, tokens, key_heads, DIM), dim=-1) for _ in range(2))
    v = normal(batch, tokens, heads, DIM)
    arguments = state_of(batch, heads)
    if name == "lightning":
        arguments["g_gamma"] = slopes(heads)
    else:
        width = (DIM,) if name == "kda" else ()
        arguments["g"] = F.logsigmoid(numbers(batch, tokens, heads, *width) + 2)
        arguments["beta"] = torch.rand(batch, tokens, heads, device="cuda").bfloat16()
    return lambda: operation_of(name, tokens)(q, k, v, **arguments)


def layer(name, batch, tokens, key_heads, heads, bounded):
    """From the layer's projections: convolved, normed and gated on the way."""
    widths = [key_heads * DIM, key_heads * DIM, heads * DIM]
    rows = [normal(batch, tokens, width) for width in widths]
    arguments = state_of(batch, heads)
    if name == "lightning":
        arguments["g_gamma"] = slopes(heads)
        convolve = [lambda x: x] * 3
    else:
        gates = heads * (DIM if name == "kda" else 1)
        raw = normal(batch, tokens, gates)
        arguments |= {
            "g": raw.view(batch, tokens, heads, DIM) if name == "kda" else raw,
            "beta": normal(batch, tokens, heads),
            "A_log": numbers(heads),
            "dt_bias": numbers(gates),
            "use_gate_in_kernel": True,
            "use_qk_l2norm_in_kernel": True,
            "use_beta_sigmoid_in_kernel": True,
        }
        if bounded:
            arguments["lower_bound"] = LOWER_BOUND
            if tokens > 1:
                arguments["safe_gate"] = True
        convolve = [convolution(width, batch) for width in widths]
    operation = operation_of(name, tokens)

    def call():
        q, k, v = (
            one(x).view(batch, tokens, -1, DIM) for one, x in zip(convolve, rows, strict=True)
        )
        return operation(q, k, v, **arguments)

    return call


def convolution(width, batch):
    module = ShortConvolution(width, CONVOLUTION, activation="silu", device="cuda").bfloat16()
    cache = normal(batch, width, CONVOLUTION)
    return lambda x: module(x, cache=cache, output_final_state=True)[0]


def cases():
    """(name, form, a function that makes the call)"""
    for name in LAYERS:
        operation, _, _, _, heads, shape = name.split("/")
        heads = int(heads[1:])
        batch, tokens = map(int, re.fullmatch(r"b(\d+)x(\d+)", shape).groups())
        key_heads = heads // 2 if operation == "gdn" else heads
        for bounded in (False, True) if operation == "kda" else (False,):
            yield (
                name, "gate bounded" if bounded else "layer",
                lambda o=operation, b=batch, t=tokens, k=key_heads, h=heads, s=bounded: layer(
                    o, b, t, k, h, s
                ),
            )  # fmt: skip
    for name, *shape in KERNELS:
        yield name, "kernels", lambda s=shape: kernels(*s)


@torch.inference_mode()
def main():
    import fla

    as_json = "--json" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--json"]
    print(f"{PEER} {fla.__version__}, torch {torch.__version__}", file=sys.stderr)
    for name, form, make in cases():
        if words and not any(word in name for word in words):
            continue
        try:
            report(name, PEER, form, median_ms(make()), as_json)
        except Exception as error:  # another version's signature, a kernel that does not compile
            line = str(error).strip().splitlines()[:1]
            print(f"{name} {form}: {type(error).__name__}: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
