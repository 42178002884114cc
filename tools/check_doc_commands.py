#!/usr/bin/env python3
"""Runs the commands that README.md, docs/*.md and the program's own --help show; compares what they print.

usage: check_doc_commands.py ROOT BUILD

In a fenced block, what follows a line `$ attune …` is what it prints: `…` stands for any text, a line of `…` alone for any
lines. Files that a command names are looked for in the tree; a command whose file is not there (a real model that was not
fetched) is not run, and said to be so. Commands that would take minutes get one small case instead of a suite. C++ in
README.md must be lines of examples/.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
BUILD = pathlib.Path(sys.argv[2]).resolve()
SMALL_CASE = "gqa/decode/fp32/hd64/gqa4/page16/b1x64"
# Where a file of this name is, or a folder.
FILES = {
    "config.json": ROOT / "tests/data/configs/llama-3.1-8b.json",
    "folder": ROOT / "tests/golden/models/llama",
    "tests/golden/models": ROOT / "tests/golden/models/llama",
    "model.gguf": ROOT / ".cache/demo/SmolLM2-135M-Instruct.Q4_1.gguf",
    "SmolLM2-135M-Instruct.Q4_1.gguf": ROOT / ".cache/demo/SmolLM2-135M-Instruct.Q4_1.gguf",
    "all-MiniLM-L6-v2": ROOT / ".cache/minilm",
    "./libplain.so": BUILD / "lib/libplain.so",
}
WRITTEN = {"new.json", "new.html", "docs"}  # by the command itself, in the folder that it runs in
FILE_OPTIONS = {"--model", "--plugin", "--golden", "--prompt-file", "--weights-cache", "--write"}


def shown_by_docs():
    """(place, command, lines that it prints) of every `$ attune …` in a fenced block."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        fenced, found = False, None
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if line.startswith("```"):
                fenced = not fenced
            if found and (not fenced or line.startswith("$ ")):
                yield found
                found = None
            if fenced and line.startswith("$ attune "):
                found = (f"{page.relative_to(ROOT)}:{number}", line[2:], [])
            elif found:
                found[2].append(line)


def shown_by_help(program):
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"^  ([a-z]+) {2,}", text.split("Subcommands:")[1], re.M):
        page = subprocess.run([program, name, "--help"], capture_output=True, text=True, check=True).stdout
        for line in re.findall(r"^  (attune .*)$", page, re.M):
            yield f"attune {name} --help", line, []


def found_file(word, folder):
    if word in WRITTEN or (folder / word).exists():
        return word
    for path in (FILES.get(word), ROOT / "tests/data/configs" / word):
        if path is not None and path.exists():
            return str(path)
    return None


def prepared(words, folder):
    """The command with its files, or the name of one that is missing."""
    out, after = [], None
    for word in words:
        if after in FILE_OPTIONS or re.fullmatch(r"[\w.-]+\.(json|txt)", word):
            found = found_file(word, folder)
            if found is None:
                return None, word
            word = found
        out.append(word)
        after = word
    if out[1] == "verify" and not {"--match", "--golden"} & set(out):
        out += ["--match", "gqa/decode/*/deterministic"]
    if "--suite" in out:
        out[out.index("--suite"):out.index("--suite") + 2] = ["--case", SMALL_CASE]
    if "--case" in out:
        out[out.index("--case") + 1] = SMALL_CASE
    return out, None


def differs(want, have):
    """The first line of `want` that `have` does not hold in its place; None where all are there."""
    at, skipping = 0, True  # a page need not show how an output begins: stderr comes with it
    for line in want:
        if line.strip() == "…":
            skipping = True
            continue
        pattern = re.compile(".*".join(re.escape(part.rstrip()) for part in line.split("…")) + r"\s*" +
                             (".*" if "…" in line else ""))
        while at < len(have) and skipping and not pattern.fullmatch(have[at]):
            at += 1
        if at == len(have) or not pattern.fullmatch(have[at]):
            return line
        at, skipping = at + 1, False
    return None


def check_command(place, command, want, program, folder):
    words, missing = prepared(shlex.split(command), folder)
    if words is None:
        print(f"{place}: not run, no {missing}: {command}")
        return True
    if any(str(ROOT / ".cache") in word for word in words):
        want = []  # what a real model says, and who serves it, is the machine's
    done = subprocess.run([program, *words[1:]], capture_output=True, text=True, cwd=folder)
    refused = any(line.startswith("attune: ") for line in want)
    line = differs([w for w in want if w], [h for h in (done.stdout + done.stderr).splitlines() if h])
    if (done.returncode != 0) == refused and line is None:
        return True
    print(f"{place}: {command}\n  exit code {done.returncode}" + (f"; it does not print: {line}" if line else ""))
    print("  " + (done.stdout + done.stderr)[:2000].replace("\n", "\n  "))
    return False


def check_cpp():
    def plain(line):
        return re.sub(r"\s+", "", line.split("//")[0])
    lines = {plain(line) for path in (ROOT / "examples").rglob("*.cpp") for line in path.read_text().splitlines()}
    text = (ROOT / "README.md").read_text()
    wrong = [line for block in re.findall(r"```cpp\n(.*?)```", text, re.S) for line in block.splitlines()
             if line.strip() != "…" and plain(line) not in lines]
    for line in wrong:
        print(f"README.md shows a line that no example has: {line}")
    return not wrong


def main():
    program = str(BUILD / "bin/attune")
    good = check_cpp()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "prompts.txt").write_text("One two three\n")
        (folder / "docs").mkdir()
        count = 0
        for place, command, want in [*shown_by_docs(), *shown_by_help(program)]:
            good = check_command(place, command, want, program, folder) and good
            if (folder / "new.json").exists():  # the same twice: a busy machine is no regression
                shutil.copy(folder / "new.json", folder / "old.json")
            count += 1
    print(f"{count} commands are shown")
    return 0 if good and count > 0 else 1


if __name__ == "__main__":
    os.environ.pop("ATTUNE_PLUGINS", None)
    sys.exit(main())
