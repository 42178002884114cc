#!/usr/bin/env python3
"""Results of `attune bench --output x.json` and of a peer (JSON lines) on the same cases, as the
tables of docs/performance/cpu.md.

attention_table.py bench.json... [--peer peer.jsonl]
"""

import argparse
import json


def peers(path):
    """(phase, batch, length, threads) -> milliseconds"""
    if path is None:
        return {}
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {(r["phase"], r["batch"], r["length"], r["threads"]): r["ms"] for r in rows}


def peer_key(case, threads):
    """None unless the peer has the case: bf16, 32 query and 8 KV heads of 128, pages of 16."""
    part = case.split("/")
    if part[0] != "gqa" or part[2:6] != ["bf16", "hd128", "gqa4", "page16"]:
        return None
    batch, length = part[6][1:].split("x")
    return part[1], int(batch), int(length), threads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench", nargs="+")
    parser.add_argument("--peer")
    options = parser.parse_args()
    other = peers(options.peer)
    print("| case | threads | ms | rate | of the ceiling | peer, ms | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for path in options.bench:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        threads = report["machine"]["threads"]
        for row in report["rows"]:
            compute = row["bound"] == "compute"
            rate = f"{row['tflops'] * 1e3:.0f} GFLOP/s" if compute else f"{row['gbps']:.1f} GB/s"
            ms = other.get(peer_key(row["case"], threads))
            versus = f"{ms:.4g} | {ms / row['ms']:.1f}" if ms else " | "
            print(
                f"| {row['case']} | {threads} | {row['ms']:.4g} | {rate} "
                f"| {row['percent_of_ceiling']:.0f} % | {versus} |"
            )


if __name__ == "__main__":
    main()
