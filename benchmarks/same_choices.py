"""Whether two commits choose the same: the first 20 kernels for 200 problems of each operation and architecture.

    python benchmarks/same_choices.py record now.json
    git checkout BEFORE && python benchmarks/same_choices.py record before.json --like now.json
    python benchmarks/same_choices.py compare before.json now.json

Problems are drawn with a fixed seed from all sets of an operation, and for AITER's from the shipped data; `--like`
takes those of another record. A record has the names and scores of the first kernels of each problem, tied ones
included, or the error. `compare` prints how many answers differ, and the first difference of each operation; its exit
code is 1 if any does.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

import ckh
from ckh.errors import CkhError
from ckh.ops import operation

DATA = Path(__file__).parents[1] / "data"
COUNT, TOP = 200, 20
# Architectures of each operation, or the data that its problems are drawn from.
SETS = {
    "grouped_conv": ("gfx950", "gfx942", "gfx90a"),
    "gemm_universal": ("gfx950", "gfx942", "gfx90a"),
    "gemm_batched": ("gfx950", "gfx942"),
    "gemm_grouped": ("gfx950", "gfx942"),
    "gemm_multi_d": ("gfx950", "gfx942"),
    "gemm_preshuffle": ("gfx950", "gfx942"),
    "gemm_streamk": ("gfx950", "gfx942"),
}
MEASURED = {
    "aiter_gemm": ("aiter-gemm-gfx950", "aiter-gemm-gfx942"),
    "aiter_moe": ("aiter-moe-gfx950", "aiter-moe-gfx942"),
}


def drawn(name: str, source: str) -> list[str]:
    """Draw problems of an operation, from its sets or from a shipped dataset."""
    if name in MEASURED:
        texts = {problem.canonical() for problem in ckh.read_dataset(DATA / f"{source}.parquet").problems()}
    else:
        op = operation(name)
        # An element type for each, in turn: all of these are in the pools of both generations.
        dtypes = ("bf16", "fp16", "fp8") if name.startswith("gemm") and name != "gemm_grouped" else ("bf16", "fp16")
        texts = set()
        for number, one in enumerate(op.problems.set_names()):
            if not one.startswith("host"):
                for variant in ("forward", "bwd_data", "bwd_weight") if op.has_directions else (None,):
                    problems = op.problems.load(one, variant, dtypes[number % len(dtypes)])
                    texts |= {problem.canonical() for problem in problems}
    chosen = sorted(texts)
    random.Random(f"{name} {source}").shuffle(chosen)
    return chosen[:COUNT]


def answered(text: str, arch: str) -> list[list[str]] | str:
    """Return names and scores of a problem's first kernels, or the error that refuses it."""
    try:
        return [[ranked.name, repr(ranked.score)] for ranked in ckh.rank(text, top=TOP, arch=arch)]
    except CkhError as error:
        return type(error).__name__


def record(path: Path, like: Path | None) -> None:
    """Write the answers of this commit."""
    other = json.loads(like.read_text("utf-8")) if like else {}
    found: dict[str, dict[str, Any]] = {}
    for name, sources in {**SETS, **MEASURED}.items():
        for source in sources:
            key, arch = f"{name} {source}", source.rpartition("-")[2]
            texts = list(other[key]) if like else drawn(name, source)
            found[key] = {text: answered(text, arch) for text in texts}
            print(f"{key}: {len(texts)} problems", file=sys.stderr)
            path.write_text(json.dumps(found), "utf-8")


def compare(before: Path, after: Path) -> bool:
    """Print the differences of two records, and return whether there are any."""
    old, new = (json.loads(path.read_text("utf-8")) for path in (before, after))
    is_different: bool = old.keys() != new.keys()
    for key in old:
        differing = [text for text in old[key] if old[key][text] != new[key].get(text)]
        print(f"{key}: {len(differing)} of {len(old[key])} problems differ")
        if differing:
            is_different = True
            text = differing[0]
            print(f"  {text}\n  before {str(old[key][text])[:300]}\n  after  {str(new[key].get(text))[:300]}")
    return is_different


def main() -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--like", type=Path, help="take the problems of this record")
    options = parser.parse_args()
    if options.action == "compare":
        return int(compare(*options.files))
    record(options.files[0], options.like)
    return 0


if __name__ == "__main__":
    sys.exit(main())
