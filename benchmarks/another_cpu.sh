#!/usr/bin/env bash
# What the plan is worth that `ckh predict` offers on a CPU that the host models were not measured on: by its own
# commands, on the hold-out's layers measured here with every kernel. Before it (the shipped model), and after it: that
# model continued, as the offer has it, and one learned anew. On a machine that does nothing else, about half an hour.
#   benchmarks/another_cpu.sh DIRECTION FOLDER
set -euo pipefail
shipped=$(cd "$(dirname "$0")/../models" && pwd)/grouped_conv_$1_fp32_host
bench=(ckh bench --op grouped_conv --variant "$1" --device host)
mkdir -p "$2"
cd "$2"

"${bench[@]}" --plan auto --budget 15m --out runs/here
ckh convert runs/here --out here.parquet
ckh train --data here.parquet --warm-start "$shipped" --out continued
ckh train --data here.parquet --out anew

"${bench[@]}" --problems host-holdout --out runs/holdout
ckh convert runs/holdout --out holdout.parquet
for model in "$shipped" continued anew; do
  ckh evaluate --wide --model "$model" --data holdout.parquet --train-data here.parquet
done
compare() { ckh validate compare "$1" "$2" --data holdout.parquet || true; } # a comparison, no gate
compare "$shipped" continued
compare "$shipped" anew
compare anew continued
