#!/usr/bin/env bash
# What number, size and weights of trees do to the GEMM model: mean and P10 efficiency on the hold-out of data/.
#   benchmarks/gemm_settings.sh [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
first=(--data data/host-gemm-train.parquet)
both=("${first[@]}" --data data/host-gemm-more.parquet)

try() {  # WHAT OPTION...
  local what=$1
  shift
  local options=(--op gemm_universal --targets tflops --feature-fraction 0.4 --folds 0 --jobs "$jobs" --force)
  [[ " $* " == *" --trees "* ]] || options+=(--trees 300 --learning-rate 0.05)
  ckh train "${options[@]}" --out "$work/model" "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  ckh evaluate --model "$work/model" --data data/host-llm.parquet 2>/dev/null |
    awk -v what="$what" '$1 == "model" { printf "| %s | %s | %s |\n", what, $2, $(NF - 2) }'
}

jobs=${1:-1}
try "1,000 problems, 63 leaves" "${first[@]}" --leaves 63
try "all 3,000 problems, 63 leaves" "${both[@]}" --leaves 63
try "127 leaves" "${both[@]}" --leaves 127
try "255 leaves" "${both[@]}" --leaves 255
for seed in 1 2 3; do
  try "255 leaves, seed $seed" "${both[@]}" --leaves 255 --seed "$seed"
done
try "63 leaves, ensemble of 3" "${both[@]}" --leaves 63 --ensemble 3
try "127 leaves, ensemble of 3" "${both[@]}" --leaves 127 --ensemble 3
for seed in 42 1 2; do
  blend=("${both[@]}" --rank blend --seed "$seed")
  try "blend, 2 x 300 trees, 127 leaves, seed $seed" "${blend[@]}" --trees 300 --learning-rate 0.05 --leaves 127
  try "blend, 2 x 200 trees, 127 leaves, seed $seed" "${blend[@]}" --trees 200 --learning-rate 0.075 --leaves 127
  try "blend, 2 x 150 trees, 127 leaves, seed $seed" "${blend[@]}" --trees 150 --learning-rate 0.1 --leaves 127
  try "blend, 2 x 150 trees, 255 leaves, seed $seed" "${blend[@]}" --trees 150 --learning-rate 0.1 --leaves 255
done
