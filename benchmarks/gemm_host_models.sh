#!/usr/bin/env bash
# Makes the GEMM datasets in data/ and the GEMM model in models/ anew, as host_models.sh does for convolutions.
# What a first model thinks fast, and some other kernels, are measured on further problems: that is where it chooses.
# The hold-out is measured twice, at the start and at the end, and averaged. Leave the machine alone meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."

first=runs/gemm-first-model
options=(--op gemm_universal --force --folds 0)

measure() {  # FOLDER SET OPTION...
  local out=runs/$1 set=$2 resume=()
  shift 2
  [ -e "$out/journal.jsonl" ] && resume=(--resume)
  ckh bench --op gemm_universal --device host --problems "$set" --out "$out" "${resume[@]}" "$@"
}

measure host-llm-first host-llm --kernels all
measure host-gemm-train host-gemm-train --kernels sample:80
ckh convert runs/host-gemm-train --force --out data/host-gemm-train.parquet
ckh train "${options[@]}" --trees 300 --learning-rate 0.05 --leaves 63 --data data/host-gemm-train.parquet --out "$first"
measure host-gemm-more host-gemm-more --kernels best:60+20 --model "$first"
ckh convert runs/host-gemm-more --force --out data/host-gemm-more.parquet
measure host-llm-second host-llm --kernels all
ckh convert runs/host-llm-first runs/host-llm-second --average --force --out data/host-llm.parquet

training=(--data data/host-gemm-train.parquet --data data/host-gemm-more.parquet)
ckh train "${options[@]}" "${training[@]}" --trees 200 --learning-rate 0.075 --leaves 127 \
  --out models/gemm_universal_fp32_host
ckh evaluate --model models/gemm_universal_fp32_host --data data/host-llm.parquet \
  --train-data data/host-gemm-train.parquet --train-data data/host-gemm-more.parquet
