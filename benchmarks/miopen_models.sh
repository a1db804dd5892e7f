#!/usr/bin/env bash
# Makes the models of MIOpen's solvers in models/ anew, from times of AMD's find databases (see miopen_dataset.py).
#   benchmarks/miopen_models.sh MI200.parquet MI300X.parquet
set -euo pipefail
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python "$here/miopen_dataset.py" "$1" gfx90a 104 "$work/gfx90a.parquet"
python "$here/miopen_dataset.py" "$2" gfx942 304 "$work/gfx942.parquet"
for arch in gfx90a gfx942; do
  ckh train --op miopen_conv --data "$work/$arch.parquet" --out "$here/../models/miopen_conv_$arch" --force
done
