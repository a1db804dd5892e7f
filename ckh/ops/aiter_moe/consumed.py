"""Tuned tables for AITER, of mixtures of experts that nobody tuned; predicted ones stand apart from measured ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.data.dataset import DatasetRows
from ckh.errors import DataError, NoKernelError, UsageError
from ckh.export.consumers import ChoiceTable, Consumers, WrittenChoices
from ckh.ops.aiter_gemm.consumed import ADDED_US, SLOWEST, roofline_us
from ckh.ops.aiter_moe.installed import built_kernels
from ckh.ops.aiter_moe.kernel import CK_TILE, parts
from ckh.ops.aiter_moe.pool import newer_name
from ckh.ops.aiter_moe.problem import BOTH
from ckh.ops.aiter_moe.problem_files import is_of_mixtures
from ckh.ops.aiter_moe.tuned_csv import TunedMixture, dataset_lines, looked_up, table_text

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.export.consumers import Choices
    from ckh.learn.answer import Answer
    from ckh.ops.aiter_moe.problem import AiterMoe

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
        UsageError: a problem is one product alone.
        NoKernelError: a problem has no kernel, or none that the installed AITER builds.
        DataError: the peaks of the architecture are not known, or the installed AITER does not say what it builds.
    """
    lines = [] if choices.measured is None else dataset_lines(DatasetRows(choices.measured))
    measured = {line.key: line for line in lines if not line.is_predicted}
    found: dict[tuple[Any, ...], TunedMixture] = {}
    rows = {}
    for answer in sorted(choices.answers, key=lambda one: -one.problem.tokens):  # type: ignore[attr-defined]
        line = _predicted(answer, choices.installed)
        line = found.setdefault(line.key, _checked(measured.get(line.key, line), choices.installed))
        rows[answer.problem] = _row(answer, line)
    files = {}
    for is_predicted, folder in ((False, "measured"), (True, "predicted")):
        if some := [line for line in found.values() if line.is_predicted == is_predicted]:
            files[f"{folder}/{_NAME}"] = table_text(sorted(some, key=lambda line: line.key)).encode()
    paths = ":".join([f"$AITER/configs/{_NAME}", *(f"$PWD/{path}" for path in files)])
    return WrittenChoices(files, tuple(rows[one.problem] for one in choices.answers), _HOW_TO.format(paths=paths))


def _predicted(answer: Answer, installed: Path | None) -> TunedMixture:
    """The row of an answer's first choice that AITER has, for the tokens that it looks up."""
    if answer.failure is not None:
        raise answer.failure
    problem: Any = answer.problem
    if problem.stage != BOTH:
        raise UsageError(f"a row of AITER's is of both products: {problem.canonical()}", "leave out --stage")
    arch = answer.model.spec.arch
    ranked = answer.best(1) if installed is None else answer.ranked
    kernel = next(
        (one.name for one in ranked if installed is None or _is_built(one.name, problem, arch, installed)), None
    )
    if kernel is None:
        raise NoKernelError(f"AITER in {installed} has none of the kernels for {problem.canonical()}")
    problem = looked_up(problem)
    bound = SLOWEST * (roofline_us(problem, arch) + ADDED_US)
    return TunedMixture(arch, problem, kernel, bound, is_predicted=True)


def _is_built(kernel: str, problem: AiterMoe, arch: str, root: Path) -> bool:
    """True if the AITER in a folder has both kernels of a choice."""
    names = [newer_name(part.name) for part in parts(kernel)]
    if any(name.startswith(CK_TILE) for name in names):
        raise UsageError(f"{root} does not name CK Tile's kernels of experts", "leave out --installed")
    return built_kernels(root, arch, problem).issuperset(names)


def _checked(line: TunedMixture, root: Path | None) -> TunedMixture:
    if root is not None and not _is_built(line.kernel, line.problem, line.arch, root):
        raise DataError(
            f"AITER in {root} has no kernels {line.kernel}, which {line.problem.canonical()} was measured with"
        )
    return line


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
