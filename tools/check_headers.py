#!/usr/bin/env python3
"""Fails when a header does not compile on its own. usage: check_headers.py COMPILER ROOT BUILD

The build has compiled a header on its own where a source includes it before anything else, and so has whoever compiles
a header with that one, the header that it includes first. The others are compiled here."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

# Headers of one instruction set compile only with its flags; their kernels' objects check them.
ISA = ("avx2", "avx512", "amx.hpp", "/cuda/", "/sm80/", "/sm90/", "/ptx/")
DIRECTIVE = re.compile(r"^\s*#\s*(include|if|ifdef|ifndef|define)\b\s*[\"<]?([^\">\s]*)", re.M)


def first_header(root, file):
    """The header of ours that `file` includes before anything else, if there is one."""
    found = DIRECTIVE.search(file.read_text())
    if not found or found[1] != "include":
        return None
    for folder in (file.parent, root / "include", root / "src"):
        header = folder / found[2]
        if header.is_file():
            return header.resolve()
    return None


def closure(root, files):
    """Headers that come first in `files`, and in those headers."""
    seen = set()
    files = list(files)
    while files:
        header = first_header(root, files.pop())
        if header and header not in seen:
            seen.add(header)
            files.append(header)
    return seen


def compiled_sources(root, build):
    commands = json.loads((build / "compile_commands.json").read_text())
    sources = {pathlib.Path(c["directory"], c["file"]).resolve() for c in commands if "nvcc" not in c["command"]}
    return [s for s in sources if s.is_relative_to(root / "src") and s.suffix == ".cpp"
            and not any(word in str(s) for word in ISA)]


def compiles(compiler, root, build, header):
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", f"-I{root}/include", f"-I{root}/src",
               f"-I{build}/generated", "-x", "c++", "-"]
    done = subprocess.run(command, input=f'#include "{header}"\n', text=True, capture_output=True)
    return header, done.returncode, done.stderr


def main():
    compiler, root, build = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
    headers = [h for folder in ("include", "src") for h in sorted((root / folder).rglob("*.hpp"))
               if not any(word in str(h) for word in ISA)]
    by_build = closure(root, compiled_sources(root, build))
    rest = [h for h in headers if h not in by_build]
    alone = closure(root, rest)
    rest = [h for h in rest if h not in alone]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda h: compiles(compiler, root, build, h), rest))
    bad = [(h, text) for h, code, text in results if code != 0]
    for header, text in bad:
        print(f"{header} does not stand alone:\n{text}")
    print(f"{len(headers) - len(bad)} of {len(headers)} headers stand alone; {len(rest)} were compiled here")
    return 1 if bad or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
