"""Problems per second of `ckh.rank_many` with each shipped model: the best kernel of each.

    python benchmarks/rank_many.py [MODEL ...] [--rounds 3] [--profile]

Problems are distinct and drawn at random around the problems of the model's set or data: each with other sizes along
one or two dimensions. Preparations that depend only on the kind of problems are not timed. CPU time of one core, best
of the rounds.
"""

from __future__ import annotations

import argparse
import cProfile
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ckh
from ckh.data.dataset import read_dataset
from ckh.errors import CkhError
from ckh.files.paths import data_dir
from ckh.learn.models.artifact import Model, list_models, load_model
from ckh.learn.models.spec import ANY

_DATA = Path(__file__).parents[1] / "data"
_COUNT = 10_000
_DRAWN = {  # fields whose sizes are drawn, by operation
    "grouped_conv": ("n", "hi", "wi"),
    "gemm_universal": ("m", "n", "k"),
    "aiter_gemm": ("m", "n"),
    "aiter_moe": ("tokens", "inter_dim"),
}
_STEP = 8  # divisor of drawn sizes, except the first


def main() -> None:
    """Time one call for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of shipped models; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    for ref in list_models([data_dir("models")]):
        if not options.models or ref.path.name in options.models:
            measure(ref.path, options.rounds, is_profiled=options.profile)


def measure(path: Path, rounds: int, *, is_profiled: bool) -> None:
    """Print the rates of one model."""
    model = load_model(path)
    problems = _problems(model)
    ckh.rank_many(problems, 1, model)
    rates = []
    for tflops in (True, False):
        taken = []
        for _ in range(rounds):
            start = time.process_time()
            ckh.rank_many(problems, 1, model, tflops=tflops)
            taken.append(time.process_time() - start)
        rates.append(len(problems) / min(taken))
    figures = f"{rates[0]:7.0f} problems/s, {rates[1]:7.0f} the order alone"
    print(f"{path.name:34} {len(problems)} problems, {_pools(model, problems)}: {figures}", flush=True)
    if is_profiled:
        profile = cProfile.Profile()
        profile.runcall(ckh.rank_many, problems, 1, model)
        profile.print_stats("cumulative")


def _pools(model: Model, problems: list[Any]) -> str:
    kinds = {model.spec.op.kernels.key_of(problem) for problem in problems}
    return f"{len(kinds)} kinds"


def _problems(model: Model) -> list[Any]:
    """Distinct problems around known ones."""
    spec, op, draw = model.spec, model.spec.op, random.Random(1)
    variant, dtype = None if spec.variant is None else str(spec.variant), None if spec.dtype == ANY else spec.dtype
    if op.problems.set_names():
        known = [item for name in op.problems.set_names() for item in op.problems.load(name, variant, dtype)]
    else:
        known = read_dataset(_DATA / f"{op.name.replace('_', '-')}-{spec.arch}.parquet").problems()
    result: dict[Any, None] = {}
    while len(result) < _COUNT:
        base: Any = draw.choice(known)
        first, *others = _DRAWN[op.name]
        sizes = {first: draw.randint(1, 2 * getattr(base, first))}
        sizes |= {name: _STEP * draw.randint(1, 1 + getattr(base, name) // 4) for name in others}
        try:
            problem = replace(base, **sizes)
        except CkhError:
            continue
        result[problem] = None
    return list(result)


if __name__ == "__main__":
    main()
