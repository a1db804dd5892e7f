#!/usr/bin/env bash
# Makes the GEMM datasets in data/ and the GEMM model in models/ anew, as host_models.sh does for convolutions.
# What a first model thinks fast, and some other kernels, are measured on further problems: that is where it chooses.
set -euo pipefail
cd "$(dirname "$0")/.."

first=runs/gemm-first-model
options=(--op gemm_universal --force --trees 300 --leaves 63 --learning-rate 0.05 --feature-fraction 0.4 --folds 0)

measure() {  # SET LEADERS OPTION...
  local run=runs/$1 set=$1 leaders=$2 resume=()
  shift 2
  [ -e "$run/journal.jsonl" ] && resume=(--resume)
  ckh bench --op gemm_universal --device host --problems "$set" --leaders "$leaders" --out "$run" "${resume[@]}" "$@"
  ckh convert "$run" --out "data/$set.parquet"
}

measure host-gemm-train 24 --kernels sample:80
ckh train "${options[@]}" --data data/host-gemm-train.parquet --out "$first"
measure host-gemm-more 24 --kernels best:60+20 --model "$first"
measure host-llm 300 --kernels all

training=(--data data/host-gemm-train.parquet --data data/host-gemm-more.parquet)
ckh train "${options[@]}" "${training[@]}" --out models/gemm_universal_fp32_host
ckh evaluate --model models/gemm_universal_fp32_host --data data/host-llm.parquet
