#!/usr/bin/env python3
"""Fails when a file includes what its layer may not (docs/architecture.md, "Layers, bottom up").

usage: check_layers.py ROOT
"""
import pathlib
import re
import sys

# layer -> layers it may include. A layer may always include itself, except backends (one folder never meets another).
MAY = {
    "base": [],
    "device": ["base"],
    "tensor": ["base", "device"],
    "attention": ["base", "device", "tensor"],
    "kernels": ["base", "tensor", "attention"],
    "plan": ["base", "device", "tensor", "attention"],
    "backends": ["base", "device", "tensor", "attention", "kernels", "plan"],
    "registry": ["base", "device", "tensor", "attention", "backends"],
    "cache": ["base", "device", "tensor", "attention"],
    "text": ["base"],
    "model": ["base", "device", "tensor", "attention", "kernels", "plan", "registry", "cache", "text"],
    "runtime": ["base", "device", "tensor", "attention", "plan", "registry", "cache", "model", "text"],
    "conformance": ["base", "device", "tensor", "attention", "kernels", "plan", "registry", "cache", "model",
                    "runtime"],
    "bench": ["base", "device", "tensor", "attention", "kernels", "plan", "registry", "cache"],
    "cli": ["base", "device", "tensor", "attention", "registry", "cache", "model", "text", "runtime",
            "conformance", "bench"],
}
# The layer each public header belongs to.
PUBLIC = {
    "status": "base", "fixed_list": "base", "device": "device", "tensor": "tensor", "spec": "attention",
    "batch": "attention", "backend": "attention", "descriptor": "attention", "plugin": "attention",
    "linear_state": "attention", "linear_family": "attention", "sparse_call": "attention", "validate": "attention",
    "compressed_call": "attention", "draft_tree": "attention", "flex": "attention",
    "score_mod": "attention", "registry": "registry",
    "cache": "cache", "prefix_cache": "cache", "attune": "cli",
}
# Kernels see plain structs only: these headers of `attention`, and nothing else of it.
KERNEL_HEADERS = {"attention/paged_kv.hpp", "attention/mask.hpp", "attention/lse.hpp", "attention/work_list.hpp",
                  "attention/prefill_list.hpp", "attention/latent_list.hpp", "attention/packed_latent.hpp",
                  "attention/block_table.hpp"}
KERNEL_PUBLIC = {"fixed_list", "tensor", "score_mod"}
KERNEL_TENSOR = {"tensor/narrow_float.hpp"}

# Headers that CMake writes from the catalog, and the layer that reads each.
GENERATED = {"attune_catalog_includes.hpp": "registry", "attune_cuda_includes.hpp": "backends",
             "attune_cuda_backends.inc": "backends"}

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<attune/([^.>]+)\.hpp>)')


def complaints(root):
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".hpp", ".cpp", ".cu", ".cuh"}:
            continue
        layer = path.relative_to(root / "src").parts[0]
        if layer not in MAY:
            yield f"{path}: '{layer}' is not a layer"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quoted, public = match.groups()
            where = f"{path.relative_to(root)}:{number}"
            if GENERATED.get(quoted) == layer:
                continue
            target = quoted.split("/")[0] if quoted else PUBLIC.get(public)
            if target not in MAY:
                yield f"{where}: cannot tell the layer of {line.strip()}"
            elif target != layer and target not in MAY[layer] and not (
                    layer == "kernels" and public in KERNEL_PUBLIC):
                yield f"{where}: {layer} may not include {target}"
            elif layer == "kernels" and target == "attention" and (
                    quoted not in KERNEL_HEADERS and public not in KERNEL_PUBLIC):
                yield f"{where}: a kernel sees {sorted(KERNEL_HEADERS)} of attention, not {quoted or public}"
            elif layer == "kernels" and target == "tensor" and quoted and quoted not in KERNEL_TENSOR:
                yield f"{where}: a kernel sees {sorted(KERNEL_TENSOR)} of tensor, not {quoted}"
            elif layer == "backends" and target == "backends":
                mine = path.relative_to(root / "src").parts[1]
                if quoted.split("/")[1] not in (mine, "shared"):
                    yield f"{where}: backend {mine} may not include another backend"
            elif target == "backends" and layer != "backends" and quoted != "backends/catalog.inc" and \
                    not quoted.endswith("/descriptor.hpp"):
                yield f"{where}: {layer} may include only backends/catalog.inc and backends/*/descriptor.hpp"


def main():
    found = list(complaints(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "layers hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
