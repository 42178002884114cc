#!/usr/bin/env python3
"""Results of `attune bench --output x.json`, beside peers on the same cases, as the tables of
docs/performance.

attention_table.py bench.json... [--best] [--peer peer.jsonl ...]

A peer's file holds a JSON object a line: `peer`, `ms` and the case, either by attune's name
(`case`) or, for CPU peers that ran 32/8 heads of 128 in bf16, by phase, batch, length and threads.
Of a peer that ran a case in several forms (`form`: pages or contiguous keys, say) the fastest is
shown. `--best` keeps the fastest backend of each case.
"""

import argparse
import json


def read_peers(paths):
    """case -> {peer: (ms, form)}; cases are names or (phase, batch, length, threads)"""
    found = {}
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                case = row.get("case") or tuple(
                    row[key] for key in ("phase", "batch", "length", "threads")
                )
                of_case = found.setdefault(case, {})
                time = (row["ms"], row.get("form", ""))
                of_case[row["peer"]] = min(time, of_case.get(row["peer"], time))
    return found


def cpu_key(case, threads):
    """None unless a CPU peer has the case: bf16, 32 query and 8 KV heads of 128, pages of 16."""
    part = case.split("/")
    if part[0] != "gqa" or part[2:6] != ["bf16", "hd128", "gqa4", "page16"] or "+" in part[6]:
        return None
    batch, length = part[6][1:].split("x")
    return part[1], int(batch), int(length), threads


def time_of(ms):
    return f"{ms * 1e3:.4g} us" if ms < 1 else f"{ms:.4g} ms"


def fastest(rows):
    best = {}
    for row in rows:
        if row["case"] not in best or row["ms"] < best[row["case"]]["ms"]:
            best[row["case"]] = row
    return list(best.values())


def print_report(report, peers, best):
    device, ceilings = report["machine"]["device"], report["ceilings"]
    threads = report["machine"]["threads"]
    where = f"{threads} threads" if device == "cpu" else device
    print(
        f"{report['machine']['name']}, {where}; ceilings of the same run: "
        f"{ceilings['read_gbps']:.0f} GB/s ({ceilings['read_how']}), "
        f"{ceilings['bf16_tflops']:.4g} TFLOP/s bf16 ({ceilings['bf16_how']})\n"
    )
    print("| case | backend | time | rate | of the ceiling | peers: time, ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in fastest(report["rows"]) if best else report["rows"]:
        compute = row["bound"] == "compute"
        unit = 1e3 if device == "cpu" else 1.0
        rate = (
            f"{row['tflops'] * unit:.3g} {'GFLOP/s' if device == 'cpu' else 'TFLOP/s'}"
            if compute
            else f"{row['gbps']:.4g} GB/s"
        )
        key = cpu_key(row["case"], threads) if device == "cpu" else None
        others = peers.get(row["case"], {}) | peers.get(key, {})
        versus = ", ".join(
            f"{peer}{f' ({form})' if form else ''} {time_of(ms)}, {ms / row['ms']:.2f}x"
            for peer, (ms, form) in sorted(others.items(), key=lambda other: other[1])
        )
        print(
            f"| {row['case']} | {row['backend']} | {time_of(row['ms'])} | {rate} "
            f"| {row['percent_of_ceiling']:.0f} % ({row['bound']}) | {versus} |"
        )
    print()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench", nargs="+")
    parser.add_argument("--peer", action="extend", nargs="+", default=[])
    parser.add_argument("--best", action="store_true")
    options = parser.parse_args()
    peers = read_peers(options.peer)
    for path in options.bench:
        with open(path, encoding="utf-8") as file:
            print_report(json.load(file), peers, options.best)


if __name__ == "__main__":
    main()
