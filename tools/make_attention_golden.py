#!/usr/bin/env python3
"""Writes tests/golden/attention.txt: softmax attention by numpy, whole matrices at once.

Independent of the loops it checks: masks are boolean matrices, narrow formats are decoded from their
definition. One request a case; numbers are exact decimal forms of the stored values.

    tools/make_attention_golden.py tests/golden/attention.txt
"""
import sys

import numpy as np

rng = np.random.default_rng(20240817)


def decode(codes, exponent_bits, mantissa_bits, bias):
    sign = np.where(codes >> (exponent_bits + mantissa_bits), -1.0, 1.0)
    e = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    m = codes & ((1 << mantissa_bits) - 1)
    fraction = m / (1 << mantissa_bits)
    return sign * np.where(e == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (e - bias))


FORMATS = {
    "fp32": None,
    "bf16": (8, 7, 127),
    "fp16": (5, 10, 15),
    "fp8_e4m3": (4, 3, 7),
    "fp8_e5m2": (5, 2, 15),
}


def stored(shape, dtype):
    """Values of a normal distribution that the dtype holds exactly."""
    x = rng.standard_normal(shape)
    if dtype == "fp32":
        return x.astype(np.float32).astype(np.float64)
    if dtype == "int8":
        return np.rint(x * 40).clip(-127, 127)
    e, m, bias = FORMATS[dtype]
    every = decode(np.arange(1 << (e + m)), e, m, bias)
    every = every[: (1 << (e + m)) - (1 << m)]  # without the codes of infinity and NaN
    nearest = every[np.abs(every[None, :] - np.abs(x).reshape(-1, 1)).argmin(1)] if len(every) < 4096 \
        else every[np.searchsorted(every, np.abs(x).reshape(-1)).clip(0, len(every) - 1)]
    return (np.sign(x).reshape(-1) * nearest).reshape(shape)


def attend(q, k, v, c):
    t, heads, _ = q.shape
    n, kv_heads, _ = k.shape
    k_scale = np.asarray(c.get("k_scale_per_head", [c["k_scale"]] * kv_heads))
    v_scale = np.asarray(c.get("v_scale_per_head", [c["v_scale"]] * kv_heads))
    repeat = heads // kv_heads
    kk = np.repeat(k * k_scale[None, :, None], repeat, 1)
    vv = np.repeat(v * v_scale[None, :, None], repeat, 1)
    s = np.einsum("thd,nhd->htn", q, kk) * c["sm_scale"] * c["q_scale"]
    if c["cap"] > 0:
        s = c["cap"] * np.tanh(s / c["cap"])
    i = c["offset"] + n - t + np.arange(t)[:, None]
    j = c["offset"] + np.arange(n)[None, :]
    if c["xai"] > 0:
        with np.errstate(invalid="ignore", divide="ignore"):
            tau = np.where(i > c["xai"], np.log2(np.maximum(i, 1)) / np.log2(c["xai"]), 1.0)
        s = s * tau[None]
    if "slopes" in c:
        s = s - np.asarray(c["slopes"])[:, None, None] * np.abs(i - j)[None]
    seen = np.ones((t, n), bool)
    if "mask" in c:
        seen &= c["mask"]
    elif c["causal"]:
        seen &= j <= i
    if c["left"] >= 0:
        seen &= j >= i - c["left"]
    if c["right"] >= 0:
        seen &= j <= i + c["right"]
    if c["chunk"] > 0:
        seen &= np.floor_divide(i, c["chunk"]) == np.floor_divide(j, c["chunk"])
    s = np.where(seen[None], s, -np.inf)
    m = s.max(-1, keepdims=True, initial=-np.inf)
    m = np.where(np.isinf(m), 0, m)
    p = np.exp(s - m)
    d = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = (m + np.log(d))[..., 0].T
        whole = d + (np.exp(np.asarray(c["sinks"])[:, None, None] - m) if "sinks" in c else 0)
        o = np.where(d > 0, np.einsum("htn,nhd->htd", p, vv) / whole, 0.0)
    return o.transpose(1, 0, 2), lse


def numbers(x):
    return " ".join(f"{float(y):.9g}" for y in np.asarray(x).reshape(-1))


def write(out, name, t, n, heads, kv_heads, dqk, dvo, dtype="fp32", **options):
    c = dict(sm_scale=0.25, q_scale=1.0, k_scale=1.0, v_scale=1.0, cap=0.0, causal=1, left=-1, right=-1,
             chunk=0, xai=0, offset=0, mla=0)
    c.update(options)
    q = stored((t, heads, dqk), "fp32")
    k = stored((n, kv_heads, dqk), dtype)
    v = k[..., :dvo] if c["mla"] else stored((n, kv_heads, dvo), dtype)
    o, lse = attend(q, k, v, c)
    out.write(f"case {name}\n")
    out.write(f"dtype {dtype}\n")
    for key, value in dict(qo_len=t, kv_len=n, heads=heads, kv_heads=kv_heads, dqk=dqk, dvo=dvo, **{
            key: c[key] for key in ("sm_scale", "q_scale", "k_scale", "v_scale", "cap", "causal", "left",
                                    "right", "chunk", "xai", "offset", "mla")}).items():
        out.write(f"{key} {value}\n")
    for key in ("slopes", "sinks", "k_scale_per_head", "v_scale_per_head"):
        if key in c:
            out.write(f"{key} {numbers(c[key])}\n")
    if "mask" in c:
        out.write(f"mask {' '.join(str(b) for b in np.packbits(c['mask'], bitorder='little'))}\n")
    out.write(f"q {numbers(q)}\nk {numbers(k)}\nv {numbers(v)}\no {numbers(o)}\nlse {numbers(lse)}\nend\n")


def main(path):
    f32 = np.float32
    with open(path, "w") as out:
        out.write("# Written by tools/make_attention_golden.py; do not edit.\n")
        write(out, "causal_prefill", 5, 5, 4, 2, 8, 8)
        write(out, "causal_bottom_right", 2, 9, 4, 4, 8, 8)
        write(out, "decode", 1, 17, 6, 2, 8, 8)
        write(out, "more_queries_than_keys", 5, 2, 2, 1, 8, 8)
        write(out, "no_keys", 3, 0, 2, 1, 8, 8)
        write(out, "group_of_9", 1, 7, 9, 1, 8, 8)
        write(out, "group_of_71", 1, 3, 71, 1, 4, 4)
        write(out, "unequal_dims", 3, 7, 2, 2, 12, 5)
        write(out, "odd_dims", 3, 7, 2, 1, 7, 3)
        write(out, "bidirectional", 4, 4, 2, 2, 8, 8, causal=0)
        write(out, "cross", 3, 11, 2, 2, 8, 8, causal=0)
        for w in (0, 1, 3, 4):
            write(out, f"window_left_{w}", 6, 13, 2, 1, 8, 8, left=w)
        write(out, "window_both_sides", 9, 9, 2, 1, 8, 8, causal=0, left=2, right=2)
        write(out, "window_right_only", 9, 9, 2, 1, 8, 8, causal=0, right=1)
        write(out, "chunk", 7, 12, 2, 1, 8, 8, chunk=4)
        write(out, "chunk_more_queries_than_keys", 6, 3, 2, 1, 8, 8, chunk=4)
        write(out, "soft_cap", 3, 8, 2, 1, 8, 8, cap=2.5, sm_scale=2.0)
        write(out, "sinks", 3, 8, 4, 2, 8, 8, sinks=[1.5, -30.0, 0.0, 80.0])
        write(out, "sinks_and_empty_rows", 4, 2, 2, 2, 8, 8, sinks=[1.5, 0.25])
        write(out, "alibi", 3, 8, 6, 3, 8, 8, slopes=[0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125])
        write(out, "alibi_cross", 3, 7, 2, 1, 8, 8, causal=0, slopes=[0.25, 0.5])
        write(out, "alibi_and_cap", 3, 8, 2, 1, 8, 8, cap=1.5, sm_scale=2.0, slopes=[0.25, 0.5])
        write(out, "xai_temperature", 4, 12, 2, 1, 8, 8, xai=8, cap=2.5)
        write(out, "offset_window_alibi", 3, 9, 2, 1, 8, 8, offset=128, left=5, slopes=[0.25, 0.5])
        write(out, "offset_xai", 2, 9, 2, 1, 8, 8, offset=4096, xai=1024)
        write(out, "offset_chunk", 3, 9, 2, 1, 8, 8, offset=32, chunk=8)
        mask = rng.random((4, 11)) < 0.5
        mask[2] = False
        write(out, "custom_mask", 4, 11, 2, 1, 8, 8, mask=mask)
        write(out, "custom_mask_and_window", 4, 11, 2, 1, 8, 8, mask=mask, left=4)
        write(out, "q_scale", 2, 5, 2, 1, 8, 8, q_scale=0.5)
        for dtype in ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8"):
            scale = float(f32(0.02)) if dtype == "int8" else 0.5
            write(out, f"kv_{dtype}", 2, 9, 4, 2, 8, 8, dtype, k_scale=scale, v_scale=scale * 2)
        write(out, "scales_per_head", 2, 9, 4, 2, 8, 8, "fp8_e4m3",
              k_scale_per_head=[0.5, 2.0], v_scale_per_head=[1.5, 0.25])
        write(out, "mla", 2, 9, 5, 1, 12, 8, "bf16", mla=1)
        write(out, "mla_fp8", 2, 9, 5, 1, 12, 8, "fp8_e4m3", mla=1, k_scale=0.5, v_scale=0.5)
        write(out, "everything", 5, 14, 6, 2, 8, 6, "bf16", cap=3.0, left=6, sinks=[0.5] * 6,
              slopes=[0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125], xai=6, q_scale=0.75,
              k_scale=1.5, v_scale=0.5, offset=3)


main(sys.argv[1])
