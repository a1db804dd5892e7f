"""Tuned tables for AITER, of shapes that nobody tuned; predicted ones stand apart from measured ones.

A shape that AITER would find in the measured rows, padded or not, gets no predicted row. All others get the best ranked
kernel that AITER builds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import DataError, NoKernelError
from ckh.export.consumers import ChoiceTable, Consumers, WrittenChoices
from ckh.ops.aiter_gemm.installed import installed_kernels
from ckh.ops.aiter_gemm.kernel import parse_kernel
from ckh.ops.aiter_gemm.tuned_csv import NO_ID, TunedLine, by_family, looked_up, table_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ckh.data.dataset import Dataset
    from ckh.export.consumers import Choices
    from ckh.learn.answer import Answer
    from ckh.ops.aiter_gemm.installed import InstalledKernel
    from ckh.ops.aiter_gemm.problem import AiterGemm
    from ckh.ops.aiter_moe.problem import AiterMoe

# No winner of AMD's tables took longer than this many times the roofline's time with that much added
# (tests/ops/aiter_gemm/test_consumed.py goes over all that ship).
SLOWEST, ADDED_US = 250.0, 10.0
_VARIABLES = {
    "a8w8": "AITER_CONFIG_GEMM_A8W8",
    "a8w8_bpreshuffle": "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE",
    "a8w8_blockscale": "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE",
    "a8w8_blockscale_bpreshuffle": "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE_BPRESHUFFLE",
    "a4w4_blockscale": "AITER_CONFIG_GEMM_A4W4",
}
_HOW_TO = """AITER reads its own table and these when the variable names them all; $AITER is the folder of its package:

```console
{exports}
export AITER_REBUILD=1    # once: kernels of some families are compiled in from the tables
```

- `measured/` has measured times of the shapes, in AITER's own columns.
- `predicted/` has choices of a model: nobody measured them. The column `predicted` says so, and `us` is a bound from
  above, not a time, so that where AITER joins tables no predicted row displaces a measured one. Versions of AITER that
  want the same columns in all tables (those without `gfx`) cannot join these: name the file alone.
- A variable that is set replaces the tables in `aiter/configs/model_configs` too: add those that you need.
- `kernelId` is {ids}.
"""


@dataclass(slots=True)
class _Measured:
    """Measured winners by the key without M, then by M; and all measured times of a kernel on a layer by M."""

    rows: dict[tuple[Any, ...], dict[int, TunedLine]] = field(default_factory=lambda: defaultdict(dict))
    times: dict[tuple[Any, ...], list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def found(self, arch: str, problem: AiterGemm) -> TunedLine | None:
        """The row that AITER finds for a shape."""
        rows = self.rows.get(_layer(arch, problem), {})
        return next((rows[m] for m in looked_up(problem) if m in rows), None)

    def at_most_us(self, arch: str, problem: AiterGemm, kernel: str) -> float | None:
        """The least measured time of a kernel for this many rows of the layer or more: it needs no more for these."""
        known = self.times.get((*_layer(arch, problem), kernel), [])
        return min((time for m, time in known if m >= problem.m), default=None)


def roofline_us(problem: AiterGemm | AiterMoe, arch: str) -> float:
    """The least time that a device's peaks allow, in microseconds.

    Raises:
        DataError: the architecture's peaks are not known for the element type.
    """
    spec = load_arch(arch)
    rate = None if spec.peaks is None else spec.peaks.flops_per_cu_clock.get(problem.dtype)
    if spec.peaks is None or rate is None:
        raise DataError(f"the peaks of {arch} for {problem.dtype} are not known")
    compute = problem.flops / (rate * problem.num_cus * spec.hardware.max_clock_mhz)
    return max(compute, problem.bytes / spec.peaks.bandwidth_gb_s / 1e3)


def write_tables(choices: Choices) -> WrittenChoices:
    """The tables for the problems of answers.

    Raises:
        NoKernelError: a problem has no kernel, or none that the installed AITER has.
        DataError: two problems are one shape for AITER; or its lists cannot be read.
    """
    measured = _measured(choices.measured)
    lines: dict[tuple[Any, ...], TunedLine] = {}
    chosen: list[Mapping[str, Any]] = []
    for answer in choices.answers:
        line, basis = _choice(answer, measured, choices.installed)
        known = lines.setdefault(line.key, line)
        if known.kernel != line.kernel:
            raise DataError(
                f"{answer.problem.canonical()} and {known.problem.canonical()} are one row for AITER",
                "choose one library for a shape",
            )
        chosen.append(_row(answer, line, basis))
    files = {
        f"{'predicted' if is_predicted else 'measured'}/{family}_tuned_gemm.csv": table_text(some).encode()
        for is_predicted in (False, True)
        for family, some in by_family(one for one in lines.values() if one.is_predicted == is_predicted).items()
    }
    return WrittenChoices(files, tuple(chosen), _how_to(files, is_numbered=choices.installed is not None))


def _choice(answer: Answer, measured: _Measured, root: Path | None) -> tuple[TunedLine, str]:
    """The row for a problem, and what its time is from."""
    arch, problem = answer.model.spec.arch, _problem(answer)
    row = measured.found(arch, problem)
    if row is not None:
        row = replace(row, built_as=_built(row.kernel, row.problem, root))
        return row, "measured" if row.problem.m == problem.m else f"measured at M={row.problem.m}"
    if answer.failure is not None:
        raise answer.failure
    names = None if root is None else installed_kernels(root, problem.family, problem.library)
    kernel = next((one.name for one in answer.ranked if names is None or parse_kernel(one.name).base in names), None)
    if kernel is None:
        raise NoKernelError(f"AITER in {root} has none of the kernels for {problem.canonical()}")
    bound = measured.at_most_us(arch, problem, kernel)
    time_us = SLOWEST * (roofline_us(problem, arch) + ADDED_US) if bound is None else bound
    basis = "bounded by the slowest of all winners" if bound is None else "bounded by a measured time"
    built = _built(kernel, problem, root)
    return TunedLine(arch, problem, kernel, time_us, is_predicted=True, built_as=built), basis


def _built(kernel: str, problem: AiterGemm, root: Path | None) -> InstalledKernel | None:
    """The name of a kernel in the installed AITER."""
    if root is None:
        return None
    base = parse_kernel(kernel).base
    names = installed_kernels(root, problem.family, problem.library)
    if base not in names:
        raise DataError(f"AITER in {root} has no kernel {base}, which {problem.canonical()} was measured with")
    return names[base]


def _measured(dataset: Dataset | None) -> _Measured:
    found = _Measured()
    if dataset is None:
        return found
    usable = dataset.valid()
    problems = usable.problems()
    columns = (usable.frame[name].tolist() for name in ("arch", "kernel_name", "latency_ms"))
    for number, arch, kernel, latency_ms in zip(usable.problem_ids.tolist(), *columns, strict=True):
        problem: AiterGemm = problems[number]
        line = TunedLine(arch, problem, kernel, latency_ms * 1e3, is_predicted=False)
        layer = _layer(arch, problem)
        rows = found.rows[layer]
        if problem.m not in rows or line.time_us < rows[problem.m].time_us:
            rows[problem.m] = line
        found.times[layer + (kernel,)].append((problem.m, line.time_us))  # noqa: RUF005 - Python 3.10
    return found


def _layer(arch: str, problem: AiterGemm) -> tuple[Any, ...]:
    return arch, problem.family, problem.dtype, problem.num_cus, problem.n, problem.k


def _problem(answer: Answer) -> AiterGemm:
    problem: Any = answer.problem
    found: AiterGemm = problem
    return found


def _row(answer: Answer, line: TunedLine, basis: str) -> dict[str, Any]:
    source = str(answer.model.path.name) if line.is_predicted else None
    return {
        "problem": answer.problem.canonical(),
        "kernel": line.kernel,
        "us": line.time_us,
        "basis": basis,
        "predicted": line.is_predicted,
        "model": source,
    }


def _how_to(files: Iterable[str], *, is_numbered: bool) -> str:
    named: dict[str, list[str]] = defaultdict(list)
    for path in files:
        named[path.rpartition("/")[2].removesuffix("_tuned_gemm.csv")].append(f"$PWD/{path}")
    exports = "\n".join(
        f"export {_VARIABLES[family]}=" + ":".join([f"$AITER/configs/{family}_tuned_gemm.csv", *paths])
        for family, paths in named.items()
    )
    ids = (
        "that of the AITER that was named with --installed"
        if is_numbered
        else f"{NO_ID}: AITER goes by `kernelName`. For versions that go by the number, export again with --installed"
    )
    return _HOW_TO.format(exports=exports, ids=ids)


CONSUMERS = Consumers(tables=(ChoiceTable("aiter", "tuned tables for a list of shapes", write_tables),))
