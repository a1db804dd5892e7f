"""Tuned tables for AITER, of mixtures of experts that nobody tuned; predicted ones stand apart from measured ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.data.dataset import DatasetRows
from ckh.errors import UsageError
from ckh.export.consumers import ChoiceTable, Consumers, WrittenChoices
from ckh.ops.aiter_gemm.consumed import ADDED_US, SLOWEST, roofline_us
from ckh.ops.aiter_moe.problem import BOTH
from ckh.ops.aiter_moe.problem_files import is_of_mixtures
from ckh.ops.aiter_moe.tuned_csv import TunedMixture, dataset_lines, looked_up, table_text

if TYPE_CHECKING:
    from ckh.export.consumers import Choices
    from ckh.learn.answer import Answer

_NAME = "tuned_fmoe.csv"
_HOW_TO = """AITER reads its own table and these when the variable names them all; $AITER is the folder of its package:

```console
export AITER_CONFIG_FMOE={paths}
```

- `measured/` has measured times of the shapes, in AITER's own columns; `us1` and `us2` where each product was measured.
- `predicted/` has choices of a model: nobody measured them. The column `predicted` says so, and `us` is a bound from
  above, not a time.
- AITER looks for tokens rounded up to a power of two (and 32768 and 131072 above): rows are of these.
- Rows are of gated experts (`use_g1u1` 1) whose weights are applied after the second product (`doweight_stage1` 0).
- A variable that is set replaces the tables in `aiter/configs/model_configs` too: add those that you need.
"""


def write_tables(choices: Choices) -> WrittenChoices:
    """The tables for the mixtures of answers. Of several that AITER pads to one row, the one of most tokens decides.

    Raises:
        UsageError: a problem is one product alone, or AITER's own lists are to decide.
        NoKernelError: a problem has no kernel.
        DataError: the peaks of the architecture are not known.
    """
    if choices.installed is not None:
        raise UsageError("--installed is for tables of GEMMs", "leave it out: tables of experts go by kernels' names")
    lines = [] if choices.measured is None else dataset_lines(DatasetRows(choices.measured))
    measured = {line.key: line for line in lines if not line.is_predicted}
    found: dict[tuple[Any, ...], TunedMixture] = {}
    rows = {}
    for answer in sorted(choices.answers, key=lambda one: -one.problem.tokens):  # type: ignore[attr-defined]
        line = _predicted(answer)
        line = found.setdefault(line.key, measured.get(line.key, line))
        rows[answer.problem] = _row(answer, line)
    files = {}
    for is_predicted, folder in ((False, "measured"), (True, "predicted")):
        if some := [line for line in found.values() if line.is_predicted == is_predicted]:
            files[f"{folder}/{_NAME}"] = table_text(sorted(some, key=lambda line: line.key)).encode()
    paths = ":".join([f"$AITER/configs/{_NAME}", *(f"$PWD/{path}" for path in files)])
    return WrittenChoices(files, tuple(rows[one.problem] for one in choices.answers), _HOW_TO.format(paths=paths))


def _predicted(answer: Answer) -> TunedMixture:
    """The row of an answer's first choice, for the tokens that AITER looks up."""
    if answer.failure is not None:
        raise answer.failure
    problem: Any = answer.problem
    if problem.stage != BOTH:
        raise UsageError(f"a row of AITER's is of both products: {problem.canonical()}", "leave out --stage")
    problem = looked_up(problem)
    bound = SLOWEST * (roofline_us(problem, answer.model.spec.arch) + ADDED_US)
    return TunedMixture(answer.model.spec.arch, problem, answer.best(1)[0].name, bound, is_predicted=True)


def _row(answer: Answer, line: TunedMixture) -> dict[str, Any]:
    problem: Any = answer.problem
    padded = "" if line.problem.tokens == problem.tokens else f" for {line.problem.tokens} tokens"
    basis = "bounded by the slowest of all winners" if line.is_predicted else "measured"
    return {
        "problem": problem.canonical(),
        "kernel": line.kernel,
        "us": line.time_us,
        "basis": basis + padded,
        "predicted": line.is_predicted,
        "model": str(answer.model.path.name) if line.is_predicted else None,
    }


CONSUMERS = Consumers(
    tables=(ChoiceTable("aiter", "tuned tables for a list of mixtures", write_tables, is_of_mixtures),)
)
