#!/usr/bin/env bash
# Every check and every case on the card at hand, and PyTorch's kernels in the same minutes. The
# results become docs/performance/h200.md:
#
#   bench/cuda/run_all.sh results
#   bench/peers/attention_table.py results/attune.json --peer results/torch.jsonl --best
set -u
cd "$(dirname "$0")/../.."
results=${1:?a folder for the results}
attune=${2:-build/release/bin/attune}
python=${PYTHON:-python3}  # with a CUDA build of PyTorch
mkdir -p "$results"
failed=0
step() {
  echo "== $*"
  timeout 300 "$@" || { echo "== failed: $* ($?)"; failed=1; }
}
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv || true
step "$attune" verify --device cuda:0
step "$attune" verify --golden tests/golden/models --device cuda:0
step "$attune" verify --cascade --device cuda:0
step "$attune" bench --device cuda:0 --output "$results/attune.json"
"$python" bench/peers/torch_sdpa.py --json >"$results/torch.jsonl" || failed=1
exit $failed
