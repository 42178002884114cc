#!/usr/bin/env python3
"""Fails when an object compiled for one instruction set offers the linker a symbol that others may pick up.

An inline function or a std:: template used in an ISA file becomes a weak symbol; the linker keeps one copy for the whole
program, and if that is the AVX-512 one, the scalar path executes it. So every weak symbol of such an object must name a
type of its own instruction set (docs/architecture.md, "CPU dispatch and the ISA files").

usage: check_isa_objects.py BUILD_DIR [NM]
"""
import pathlib
import re
import subprocess
import sys

# File suffix -> the type that must be in the name. Longest suffix first.
OWNERS = {
    "_avx512_bf16.cpp.o": r"Avx512Bf16\b",
    "_avx512_vnni.cpp.o": r"Avx512Vnni\b",
    "_avx512.cpp.o": r"Avx512\b",
    "_avx2.cpp.o": r"Avx2\b",
    "_amx.cpp.o": r"Amx\b",
}
WEAK = re.compile(r"^\S*\s+([WwVvu])\s+(.*)$")


def owner_of(path):
    for suffix, owner in OWNERS.items():
        if path.name.endswith(suffix):
            return re.compile(owner)
    return None


def strays(nm, path, owner):
    listing = subprocess.run([nm, "-C", str(path)], text=True, capture_output=True, check=True).stdout
    for line in listing.splitlines():
        match = WEAK.match(line)
        # Undefined weak references (w, v without an address) are the runtime's own.
        if match and not line.startswith(" ") and not owner.search(match.group(2)):
            yield match.group(2)


def main():
    build = pathlib.Path(sys.argv[1])
    nm = sys.argv[2] if len(sys.argv) > 2 else "nm"
    objects = [(p, owner_of(p)) for p in sorted(build.rglob("*.o"))]
    objects = [(p, o) for p, o in objects if o is not None]
    bad = 0
    for path, owner in objects:
        for symbol in strays(nm, path, owner):
            print(f"{path.relative_to(build)}: weak symbol without its ISA type: {symbol}")
            bad += 1
    print(f"{len(objects)} objects of one instruction set, {bad} stray symbols")
    return 1 if bad or not objects else 0


if __name__ == "__main__":
    sys.exit(main())
