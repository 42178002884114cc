#!/usr/bin/env python3
"""Fails when a file that a script of tools/ writes is not what the script writes.

usage: check_generated.py ROOT
"""
import pathlib
import subprocess
import sys

GENERATED = {
    "src/kernels/ptx/wgmma_shapes.cuh": ["generate_wgmma_shapes.py"],
    "src/kernels/ptx/wgmma_register_shapes.cuh": ["generate_wgmma_shapes.py", "registers"],
    "src/kernels/ptx/wgmma_narrow_shapes.cuh": ["generate_wgmma_shapes.py", "narrow"],
}


def main():
    root = pathlib.Path(sys.argv[1])
    stale = 0
    for path, (script, *words) in GENERATED.items():
        command = [sys.executable, root / "tools" / script, *words]
        if subprocess.run(command, check=True, capture_output=True).stdout != (root / path).read_bytes():
            print(f"{path} is not what tools/{' '.join([script, *words])} writes: run it, or change it there")
            stale += 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
