#!/usr/bin/env python3
"""Fails when a header does not compile on its own. usage: check_headers.py COMPILER ROOT GENERATED [PATTERN...]"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys


def compiles(compiler, root, generated, header):
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", f"-I{root}/include", f"-I{root}/src",
               f"-I{generated}", "-x", "c++", "-"]
    done = subprocess.run(command, input=f'#include "{header}"\n', text=True, capture_output=True)
    return header, done.returncode, done.stderr


def main():
    compiler, root, generated = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    headers = sorted((root / "include").rglob("*.hpp"))
    # Headers of one instruction set compile only with its flags; their kernels' objects check them.
    isa = ("avx2", "avx512", "amx.hpp", "/cuda/", "/sm80/", "/sm90/", "/ptx/")
    headers += [h for h in sorted((root / "src").rglob("*.hpp")) if not any(word in str(h) for word in isa)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda h: compiles(compiler, root, generated, h), headers))
    bad = [(h, text) for h, code, text in results if code != 0]
    for header, text in bad:
        print(f"{header} does not stand alone:\n{text}")
    print(f"{len(headers) - len(bad)} of {len(headers)} headers stand alone")
    return 1 if bad or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
