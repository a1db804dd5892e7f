"""How many problems a second `ckh.rank_many` answers with the shipped host models: the best kernel of each.

python benchmarks/rank_many.py
"""

from __future__ import annotations

import random
import time

import ckh
from ckh.learn.answer import wanted_for
from ckh.learn.artifact import find_model
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction

_COUNT = 10_000


def main() -> None:
    """Draw distinct problems and time one call for each kind."""
    draw = random.Random(1)
    convolutions = {_convolution(draw): None for _ in range(_COUNT)}
    products = {
        GemmProblem(draw.randint(1, 2000), 8 * draw.randint(1, 500), 8 * draw.randint(1, 500)): None
        for _ in range(_COUNT)
    }
    for name, problems in (("convolutions", list(convolutions)), ("GEMMs", list(products))):
        model = find_model(wanted_for(problems[0], "host"))
        ckh.rank_many(problems[:10], 1, model)
        for what, tflops in (("with TFLOPS and time", True), ("the order alone", False)):
            start = time.perf_counter()
            ckh.rank_many(problems[10:], 1, model, tflops=tflops)
            taken = time.perf_counter() - start
            print(f"{name}, {what}: {(len(problems) - 10) / taken:.0f} problems/s")


def _convolution(draw: random.Random) -> ConvProblem:
    size, channels = draw.randint(7, 120), 8 * draw.randint(1, 64)
    return ConvProblem(
        Direction.FORWARD,
        draw.choice((1, 2, 4, 8)),
        channels,
        8 * draw.randint(1, 64),
        1,
        size,
        size,
        3,
        3,
        pad_h=1,
        pad_w=1,
    )


if __name__ == "__main__":
    main()
