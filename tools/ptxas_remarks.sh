#!/bin/sh
# A compiler launcher for CUDA files: `ptxas_remarks.sh nvcc ...` fails where ptxas remarks that it serialised the tensor
# cores' products (C7510, C7511 and others of the same words). Such a kernel is right, and half as fast; nothing else
# would tell.

said=$(mktemp) || exit 1
trap 'rm -f "$said"' EXIT
"$@" 2>"$said"
status=$?
cat "$said" >&2
[ "$status" -eq 0 ] || exit "$status"
if grep -q 'wgmma.mma_async instructions are serialized' "$said"; then
  echo "error: ptxas serialised the products of a kernel, as it remarks above; see tools/ptxas_remarks.sh" >&2
  exit 1
fi
