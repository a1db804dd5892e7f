"""How models of MIOpen's solvers become C: their problems are convolutions there, of other layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.export.groups import Exported, Group
from ckh.ops.grouped_conv.consumers.exported import KIND, smallest
from ckh.ops.miopen_conv.kernels.candidates import CandidateTable, candidates, group_name, read_candidates
from ckh.ops.miopen_conv.kernels.solvers import parse_solver
from ckh.ops.miopen_conv.problem import DTYPES, LAYOUTS, MiopenProblem
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.export.groups import Reason
    from ckh.learn.models.artifact import Model


def _groups(model: Model) -> Iterator[Group]:
    """As the candidates of dense and of grouped problems come in orders of their own, a group has both, in turn."""
    table = read_candidates(model.path)

    def reason(name: str, one: Any) -> Reason:
        alone = CandidateTable({name: (one,)})

        def found(problem: Any) -> str | None:
            return next(iter(candidates(problem, alone).refused), None) if group_name(problem) == name else ""

        return found

    kinds = [(d, t, n, layout) for d in Direction for t in DTYPES for n in LAYOUTS for layout in LAYOUTS[n]]
    for direction, dtype, ndim, layout in kinds:
        example = smallest(MiopenProblem, direction, dtype, ndim, layout)
        grouped = MiopenProblem(**{**example.to_dict(), "c": 2, "k": 2, "g": 2})
        found = [
            (parse_solver(one.solver), (reason(name, one),))
            for name in (group_name(example), group_name(grouped))  # type: ignore[arg-type] # it is a MiopenProblem
            for one in table.groups.get(name, ())
        ]
        kernels, judgements = zip(*found, strict=True) if found else ((), ())
        yield Group(KIND.key(example), example, kernels, judgements, range(len(found)))


EXPORTED = Exported(KIND, _groups)
