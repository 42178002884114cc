"""What the CUDA peers of this folder share: the cases of `attune bench` by their names, data for
them, its way of timing, and a check that a peer computed what it was asked to.

Timed as src/bench/cuda/machine.cpp does: 2 ms of rest and 256 MB read before each run, 0.3 s of rest
before each case, median of as many runs. The rest before a run is a kernel that sleeps, so that a
peer's launches wait behind it and the time Python takes for them is not seen. Runs and rests have to
be the same there and here: what is bound by power runs at the clock that its rests have left it.
"""

import dataclasses
import json
import math
import re
import statistics
import sys
import time

import torch

REST_SECONDS = 0.3
HEAD_START_CYCLES = 4_000_000  # about 2 ms for the host to launch in: kPause there
LEAST_RUNS, MOST_RUNS, MOST_SECONDS = 3, 31, 2.0  # RunOptions there
KV_HEADS = 8  # where a name does not say otherwise
LATENT = 512
DTYPES = {
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "q_fp8_e4m3": torch.float8_e4m3fn,  # of queries too
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A softmax case of attune bench."""

    name: str
    latent: bool
    prefill: bool
    dtype: torch.dtype
    dim_qk: int
    dim_vo: int
    heads: int
    kv_heads: int
    page: int
    batch: int
    length: int
    decoded: int = 1  # tokens a request, where it is no prefill

    @property
    def scale(self):
        return 1 / math.sqrt(192 if self.latent else self.dim_qk)  # latents: of the expanded form

    @property
    def queries(self):
        return self.length if self.prefill else self.decoded


def parse(name):
    operation, phase, dtype, dims, group, page, shape = name.split("/")
    dim_qk, _, dim_vo = dims[2:].partition("-")
    latent = operation == "mla"
    kv_heads = 1 if latent else KV_HEADS
    batch, length = map(int, re.fullmatch(r"b(\d+)x(\d+)", shape).groups())
    return Case(
        name, latent, phase == "prefill", DTYPES[dtype], int(dim_qk),
        LATENT if latent else int(dim_vo or dim_qk), int(group[3:]) * kv_heads, kv_heads,
        int(page[4:]), batch, length,
    )  # fmt: skip


# What `attune_mla_bench time` has and attune bench has not.
TWO_TOKENS = dataclasses.replace(
    parse("mla/decode/bf16/hd576/gqa128/page64/b128x4096"),
    name="mla b128x4k h128, 2 tokens",
    decoded=2,
)


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).to(dtype)


def page_table(case, page=None):
    """(batch, pages of a request): all pages there are, in random order."""
    pages = -(-case.length // (page or case.page))
    order = torch.randperm(case.batch * pages, device="cuda", dtype=torch.int32)
    return order.view(case.batch, pages)


def int32(*values):
    return torch.tensor(values, device="cuda", dtype=torch.int32)


_flush = None


def median_ms(call):
    global _flush
    if _flush is None:
        _flush = torch.ones(64 << 20, device="cuda"), torch.zeros((), device="cuda")
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    time.sleep(REST_SECONDS)
    times = []
    while len(times) < LEAST_RUNS or (
        len(times) < MOST_RUNS and sum(times) < MOST_SECONDS * 1e3
    ):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HEAD_START_CYCLES)
        torch.sum(_flush[0], dim=0, out=_flush[1])
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def in_graph(call):
    """`call` as a graph that is launched."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return lambda _kept=call: graph.replay()  # what `call` holds is read by the graph


def check(out, q, keys, values, scale, tolerance=2e-2):
    """The last query of some heads against float64. `out` (heads, dim_vo) and `q` (heads, dim_qk)
    are of the request's last token, `keys` (length, kv heads, dim_qk) and `values` of the request."""
    group = q.shape[0] // keys.shape[1]
    for head in {0, q.shape[0] - 1}:
        k, v = keys[:, head // group].double(), values[:, head // group].double()
        expected = torch.softmax(k @ q[head].double() * scale, 0) @ v
        error = ((out[head].double() - expected).norm() / expected.norm()).item()
        if not error < tolerance:
            raise RuntimeError(f"wrong: head {head} is off by {error:.3g}")


def report(case, peer, form, ms, as_json):
    """A line for attention_table.py, or one to read."""
    if as_json:
        print(json.dumps({"case": case, "peer": peer, "form": form, "ms": ms}), flush=True)
    else:
        print(f"{case:52} {peer}, {form:28} {ms * 1e3:9.1f} us", flush=True)


def run(cases, forms):
    """Times `forms(case)` of each case, which may be a name: (peer, form, function that makes a
    checked call).

    Arguments: `--json`, and words that a case's name or the form must have one of.
    """
    as_json = "--json" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--json"]
    for case in (parse(case) if isinstance(case, str) else case for case in cases):
        for peer, form, make in forms(case):
            if words and not any(word in f"{case.name}, {form}" for word in words):
                continue
            try:
                report(case.name, peer, form, median_ms(make()), as_json)
            except Exception as error:  # another version's signature, a case that is refused
                line = str(error).strip().splitlines()
                print(
                    f"{case.name} {peer}, {form}: {type(error).__name__}: {line[:1]}",
                    file=sys.stderr,
                )
            torch.cuda.empty_cache()
