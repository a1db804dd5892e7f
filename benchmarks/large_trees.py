"""Trees for more than 60,000 rows: the choices of a held-out fold and the processor time that its model takes.

    python benchmarks/large_trees.py [DATA.parquet] [--folds 0 2]

The data are those of `data/host-gemm-more.parquet` by default; each setting is fitted to the same rows with one thread.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from ckh.data.dataset import read_dataset
from ckh.learn.training.boosting import Boosting
from ckh.learn.training.prepared import prepare
from ckh.learn.training.targets import make_fit
from ckh.learn.training.validation import Validation
from ckh.training import RANK, TreeParams, sized_options

_DATA = Path(__file__).parents[1] / "data" / "host-gemm-more.parquet"
_FOLDS = 5


def settings(default: TreeParams) -> dict[str, TreeParams]:
    """The default for so many rows and others, by name."""
    slow = replace(default, n_estimators=400, learning_rate=0.05)
    return {
        "default": default,
        "400 trees at 0.05": slow,
        "400 trees at 0.05, of a fifth of the rows": replace(slow, subsample=0.2),
        "default, of 30 % of the rows": replace(default, subsample=0.3),
    }


def main() -> None:
    """Print a line for each fold and setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=_DATA, help="dataset")
    parser.add_argument("--folds", nargs="+", type=int, default=(0, 2), help="which of five")
    arguments = parser.parse_args()
    dataset = read_dataset(arguments.data, columns=lambda op: op.column_names())
    options = replace(sized_options(len(dataset.valid())), jobs=1)
    prepared = prepare(dataset, options)
    fit = make_fit(RANK, prepared.dataset, options.rank)
    splits = prepared.splits(_FOLDS)
    for fold in arguments.folds:
        for name, params in settings(options.params).items():
            begin = time.process_time()
            boosting = Boosting(prepared, replace(options, params=params), lambda _steps, _text: None)
            found = Validation(boosting).fold_efficiency(fit, splits[fold])
            seconds = time.process_time() - begin
            tenth = np.percentile(found, 10)
            print(f"fold {fold}, {name}: mean {found.mean():.4f}, P10 {tenth:.4f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
