#!/usr/bin/env bash
# Makes the models of MIOpen's solvers in models/ anew, from times of AMD's find databases.
#   benchmarks/miopen_models.sh MI200.parquet MI300X.parquet
set -euo pipefail
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ckh convert "$1" --arch gfx90a --num-cus 104 --skip-bad --out "$work/gfx90a.parquet"
ckh convert "$2" --arch gfx942 --num-cus 304 --skip-bad --out "$work/gfx942.parquet"
for arch in gfx90a gfx942; do
  ckh train --op miopen_conv --data "$work/$arch.parquet" --out "$here/../models/miopen_conv_$arch" --force
done
# It reads the same files, by these names in one folder.
data=$(realpath "$(dirname "$1")")
(cd "$here/.." && python -m benchmarks.miopen_times --data "$data" --write)
