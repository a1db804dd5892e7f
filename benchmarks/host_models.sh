#!/usr/bin/env bash
# Makes the datasets in data/ and the models in models/ anew, on this machine: measures the training sets and the
# hold-out, converts, trains, evaluates. Run it again to go on after an interruption. Leave the machine alone meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."

for variant in forward bwd_data bwd_weight; do
  for set in host-train host-holdout; do
    run=runs/$set-$variant
    kernels=all
    [ "$set" = host-train ] && kernels=sample:60
    resume=()
    [ -e "$run/journal.jsonl" ] && resume=(--resume)
    ckh bench --variant "$variant" --device host --problems "$set" --kernels "$kernels" --out "$run" "${resume[@]}"
    ckh convert "$run" --force --out "data/$set-$variant.parquet"
  done
  ckh train --op grouped_conv --variant "$variant" --data "data/host-train-$variant.parquet" \
    --out "models/grouped_conv_${variant}_fp32_host" --force \
    --trees 400 --leaves 63 --learning-rate 0.05
  ckh evaluate --model "models/grouped_conv_${variant}_fp32_host" --data "data/host-holdout-$variant.parquet" \
    --train-data "data/host-train-$variant.parquet"
done
