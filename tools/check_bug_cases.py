#!/usr/bin/env python3
"""Fails when docs/bug-cases.md names a test that is not there. usage: check_bug_cases.py ROOT"""
import pathlib
import re
import sys


def main():
    root = pathlib.Path(sys.argv[1])
    text = "\n".join(p.read_text() for p in (root / "tests").rglob("*_test.cpp"))
    tests = {(suite, name) for suite, name in re.findall(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text)}
    suites = {suite for suite, _ in tests}
    cases = "\n".join(p.read_text() for p in (root / "src/conformance").glob("*.cpp"))
    bad = 0
    for number, line in enumerate((root / "docs/bug-cases.md").read_text().splitlines(), 1):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 5 or not re.fullmatch(r"[A-Z]\d\d", cells[1]):
            continue
        held = cells[4]
        wrong = [f"{s}.{n}" for s, n in re.findall(r"\b([A-Z]\w+)\.([A-Z]\w+)", held) if (s, n) not in tests]
        wrong += [f"{s}.*" for s in re.findall(r"\b([A-Z]\w+)\.\*", held) if s not in suites]
        wrong += [word for word in re.findall(r"`(?:mla/…/)?(\w+)`", held) if f'"{word}"' not in cases]
        for name in wrong:
            print(f"docs/bug-cases.md:{number}: there is no {name}")
        bad += len(wrong)
    print("docs/bug-cases.md names tests that are there" if bad == 0 else f"{bad} names are wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
