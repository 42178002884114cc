#!/usr/bin/env bash
# Everything a first session with a Hopper card wants to know of the latent kernels, in one command
# and without building there: checks first, the issue's cases, then the planner's two constants.
#
#   build here:  cmake --build build/release --target attune_mla_bench attune_cuda_suite
#   run there:   bench/cuda/mla_session.sh [folder of the two programs]
set -u
cd "$(dirname "$0")/../.."
programs=${1:-build/release/bin}
failed=0
step() {
  echo "== $*"
  timeout 240 "$@" || { echo "== failed: $* ($?)"; failed=1; }
}
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv || true
step "$programs/attune_mla_bench" verify
step "$programs/attune_cuda_suite" flashmla
step "$programs/attune_cuda_suite" --match 'mla*' flashinfer fa3
step "$programs/attune_mla_bench" time tokens sm80
step "$programs/attune_mla_bench" sweep
exit $failed
