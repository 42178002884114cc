#!/usr/bin/env python3
"""Fails when a page links to a file of the tree that is not there, or a source names such a page.

usage: check_links.py ROOT
"""
import pathlib
import re
import sys

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"\bdocs/[\w./-]+\.md\b")
SOURCES = {".cpp", ".hpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".md"}
FOLDERS = ["src", "include", "tests", "bench", "examples", "tools", "cmake", "docs"]


def missing(root, path):
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".md":
        for target in LINK.findall(text):
            if not (path.parent / target).exists():
                yield target
    for page in NAMED.findall(text):
        if not (root / page).exists():
            yield page


def main():
    root = pathlib.Path(sys.argv[1])
    paths = [path for path in root.iterdir() if path.is_file()]
    for folder in FOLDERS:
        paths += [path for path in (root / folder).rglob("*") if path.is_file()]
    dead = 0
    for path in sorted(path for path in paths if path.suffix in SOURCES):
        for target in missing(root, path):
            print(f"{path.relative_to(root)}: {target} is not there")
            dead += 1
    return dead


if __name__ == "__main__":
    sys.exit(main())
