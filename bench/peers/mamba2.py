#!/usr/bin/env python3
"""Times Mamba-2's own kernels (PyPI: mamba-ssm, Triton) on the cases of docs/performance/h200.md and
cuda-linear.md.

Two forms, as in fla_linear.py: "layer", what `attune bench` times, with flash-linear-attention's
short convolution, which takes the state along; and "kernels", on convolved rows. Needs a CUDA build
of PyTorch, both packages and nothing of Attune's.
"""

import sys

import torch
from mamba_ssm.ops.triton.selective_state_update import selective_state_update
from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

from cuda_peer import median_ms, normal, report
from fla_linear import convolution, numbers

HEADS, DIM, GROUPS, STATE = 128, 64, 8, 128
WIDTHS = [HEADS * DIM, GROUPS * STATE, GROUPS * STATE]  # of x, B and C
CHUNK = 256
CASES = [  # name of the layer, of the kernels, requests, tokens
    ("mamba2/prefill/bf16/hd128-64/h128/b1x8192", "mamba2 1x8192, 128x64x128", 1, 8192),
    ("mamba2/decode/bf16/hd128-64/h128/b64x1", "mamba2 b64, 128x64x128", 64, 1),
]


def recurrence(batch, tokens):
    """What takes convolved rows."""
    a, d, bias = -torch.exp(numbers(HEADS)), numbers(HEADS), numbers(HEADS)
    dt = normal(batch, tokens, HEADS)
    state = numbers(batch, HEADS, DIM, STATE)

    def prefill(x, b, c):
        return mamba_chunk_scan_combined(
            x.view(batch, tokens, HEADS, DIM), dt, a, b.view(batch, tokens, GROUPS, STATE),
            c.view(batch, tokens, GROUPS, STATE), CHUNK, D=d, dt_bias=bias, initial_states=state,
            dt_softplus=True, return_final_states=True,
        )  # fmt: skip

    def decode(x, b, c):
        def each(values):  # one number a head, as strides of zero say
            return values[..., None].expand(*values.shape, DIM)

        return selective_state_update(
            state, x.view(batch, HEADS, DIM), each(dt[:, 0]),
            a[:, None, None].expand(HEADS, DIM, STATE), b.view(batch, GROUPS, STATE),
            c.view(batch, GROUPS, STATE), each(d), dt_bias=each(bias), dt_softplus=True,
        )  # fmt: skip

    return prefill if tokens > 1 else decode


def kernels(batch, tokens):
    rows = [normal(batch, tokens, width) for width in WIDTHS]
    of_rows = recurrence(batch, tokens)
    return lambda: of_rows(*rows)


def layer(batch, tokens):
    rows = normal(batch, tokens, sum(WIDTHS))
    convolved, of_rows = convolution(sum(WIDTHS), batch), recurrence(batch, tokens)
    return lambda: of_rows(*convolved(rows).split(WIDTHS, dim=-1))


@torch.inference_mode()
def main():
    as_json = "--json" in sys.argv
    for of_layer, of_kernels, *shape in CASES:
        for name, form, make in ((of_layer, "layer", layer), (of_kernels, "kernels", kernels)):
            try:
                report(name, "mamba-ssm", form, median_ms(make(*shape)), as_json)
            except Exception as error:  # another version's signature
                line = str(error).strip().splitlines()[:1]
                print(f"{name} {form}: {type(error).__name__}: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
