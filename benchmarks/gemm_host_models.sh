#!/usr/bin/env bash
# Makes the GEMM datasets in data/ and the GEMM model in models/ anew, as host_models.sh does for convolutions.
set -euo pipefail
cd "$(dirname "$0")/.."

for set in host-gemm-train host-llm; do
  run=runs/$set
  kernels=all leaders=300
  [ "$set" = host-gemm-train ] && kernels=sample:80 leaders=24
  resume=()
  [ -e "$run/journal.jsonl" ] && resume=(--resume)
  ckh bench --op gemm_universal --device host --problems "$set" --kernels "$kernels" --leaders "$leaders" \
    --out "$run" "${resume[@]}"
  ckh convert "$run" --out "data/$set.parquet"
done
ckh train --op gemm_universal --data data/host-gemm-train.parquet --out models/gemm_universal_fp32_host --force \
  --trees 300 --leaves 63 --learning-rate 0.05 --feature-fraction 0.4 --folds 0
ckh evaluate --model models/gemm_universal_fp32_host --data data/host-llm.parquet --train-data data/host-gemm-train.parquet
