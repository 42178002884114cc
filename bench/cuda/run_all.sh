#!/usr/bin/env bash
# Every check and every case on the card at hand, and the peers that are installed in the same
# minutes. The results become docs/performance/h200.md:
#
#   bench/cuda/run_all.sh results
#   bench/peers/attention_table.py results/attune.json --best --peer results/*.jsonl
#
# PYTHON is one with a CUDA build of PyTorch and, each as it is there or not:
#
#   pip install vllm==0.26.0 fa3-fwd==0.0.3  # FlashAttention-3, FlashMLA; brings torch 2.11
#   pip install flashinfer-python==0.6.14    # compiles each kernel at its first use, for a minute
#   pip install flash-linear-attention==0.6.0 mamba-ssm==2.3.2.post1  # tune at their first use
#
# What compiles or tunes at its first use wants a run of its script before this one.
set -u
cd "$(dirname "$0")/../.."
results=${1:?a folder for the results}
attune=${2:-build/release/bin/attune}
python=${PYTHON:-python3}
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
for peer in torch_sdpa fa3_attention flashmla flashinfer_attention fla_linear mamba2; do
  echo "== $peer"
  timeout 300 "$python" bench/peers/$peer.py --json >"$results/$peer.jsonl" || echo "== not measured"
done
exit $failed
