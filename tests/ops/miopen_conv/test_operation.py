"""Record of `miopen_conv`: pools of solvers shared by problems."""

from __future__ import annotations

from random import Random

from ckh.archs import load_arch
from ckh.files.paths import data_dir
from ckh.ops import operation
from ckh.ops.miopen_conv.kernels.pool import candidates, group_name, read_candidates
from ckh.ops.miopen_conv.problem import MiopenProblem
from ckh.problems import Direction

MODEL = data_dir("models") / "miopen_conv_gfx90a"


def problem(draw: Random) -> MiopenProblem:
    """Draw a layer, dense or grouped."""
    taps, groups, size = draw.choice((1, 3, 5)), draw.choice((1, 1, 2)), draw.randint(7, 60)
    channels = (groups * 4 * draw.randint(1, 64), groups * 4 * draw.randint(1, 64), groups)
    return MiopenProblem(
        draw.choice(tuple(Direction)), 8, *channels, size, size, taps, taps, dtype=draw.choice(("fp32", "fp16"))
    )


def test_problems_of_a_group_choose_from_one_pool() -> None:
    """The pool is the group's whole list, one object; the candidates are the table's, in its order."""
    op, arch, table, draw = operation("miopen_conv"), load_arch("gfx90a"), read_candidates(MODEL), Random(3)
    pools: dict[str, object] = {}
    sizes = set()
    for _ in range(200):
        item = problem(draw)
        result, expected = op.kernels.candidates(item, arch, MODEL), candidates(item, table)
        assert tuple(map(op.kernels.name, result.kernels)) == expected.solvers
        assert result.refused == expected.refused
        assert pools.setdefault(group_name(item), result.pool) is result.pool
        sizes.add((group_name(item), len(result.chosen)))
    assert len(sizes) > len(pools) > 4
