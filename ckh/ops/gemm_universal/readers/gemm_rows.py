"""Validation of GEMM measurements of AMD's tile engine, and the table of the valid ones.

The tile engine prints times and TFLOPS with two decimals, times in milliseconds, so that most times have one or two
significant digits and TFLOPS five. `precise_time` refines such times.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.data.readers.cells import WITHOUT_TIME
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.data.tables import BLOCK_ROWS
from ckh.errors import DataError, UsageError
from ckh.files.account import Account, LeftOut
from ckh.kernels.declaration import tokens_of
from ckh.kernels.pipelines import MARKED_PADDED_PIPELINES
from ckh.kernels.table import TRIPLES
from ckh.ops.gemm_universal.features import AMD_WAVES
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH, GemmKernel, kernel_name, parse_kernel_name
from ckh.ops.gemm_universal.problem import OP_TYPE, GemmProblem
from ckh.ops.table_rows import BAD_KERNEL
from ckh.schema import SHORTEST_MS, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from ckh.archs import ArchSpec
    from ckh.data.formats import ReadOptions


BAD_PROBLEM = "with an impossible problem"
BAD_TIME = "with a time that is not a number, negative, or impossibly short"
MISMATCH = "with a kernel that is not for the problem"

_MS_FLOPS_PER_TFLOPS = 1e9
_PRINTED = 0.005  # half a unit of the second decimal, the tile engine's precision
_FINE = 1e-3  # relative precision above which a time is kept as it is
_EQUAL = 1e-9
_SINGLE = 1e-5  # the tile engine computes TFLOPS in single precision
_TFLOPS_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class Time:
    """A time in ms, 0 if missing; whether it was derived from TFLOPS, and whether these contradict it."""

    latency_ms: float
    is_refined: bool = False
    is_doubtful: bool = False


def problem_of(sizes: Mapping[str, Any], kind: type[Any] = GemmProblem, **texts: str) -> Any:
    """Return the problem, of a class with its own texts, of m, n, k and optionally its other sizes."""
    for name in kind.required:
        if name not in sizes:
            raise LeftOut(BAD_PROBLEM, f"{name} is missing")
    try:
        stated = {name: sizes[name] for name in kind.size_columns if name in sizes}
        return kind(**stated, **texts)
    except UsageError as error:
        raise LeftOut(BAD_PROBLEM, error.message) from error


def number(values: Mapping[str, Any], name: str) -> Decimal:
    """Return a finite number, with the digits in the file."""
    value = values.get(name)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise LeftOut(WITHOUT_TIME)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or not math.isfinite(_float(value)):
        raise LeftOut(BAD_TIME, f"{name} is {value}")
    return Decimal(value)


def _float(value: int | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def precise_time(latency_ms: Decimal, tflops: Decimal, flops: int) -> Time:
    """Return the time of a run from the two numbers that the tile engine prints.

    A printed time of 0.01 ms only means between 0.005 and 0.015 ms. If a time has two decimals or fewer, and TFLOPS are
    more precise and agree with it, the time is flops / TFLOPS, which rounds to the printed time. A time with more
    decimals is kept, and where TFLOPS disagree, the printed time is used.
    """
    printed, rate = float(latency_ms), float(tflops)
    if rate <= 0:
        return Time(printed)
    implied = flops / rate / _MS_FLOPS_PER_TFLOPS
    half, blur = _half_unit(latency_ms), _half_unit(tflops) / rate
    if abs(implied - printed) > half + implied * (blur + _SINGLE):
        return Time(printed, is_doubtful=abs(implied - printed) > _TFLOPS_TOLERANCE * printed)
    is_coarse = half == _PRINTED and half > _FINE * printed and half > blur * implied
    if is_coarse and abs(implied - printed) > _EQUAL * printed:
        return Time(implied, is_refined=True)
    return Time(printed)


def _half_unit(printed: Decimal) -> float:
    """Maximum rounding error of a printed number; trailing zeros may have been lost."""
    exponent = printed.as_tuple().exponent
    return min(_PRINTED, 0.5 * 10.0 ** min(exponent, 0)) if isinstance(exponent, int) else math.inf


class GemmRows:
    """The valid measurements of one file, a few bytes each, and the number of invalid ones.

    The n-th measurement of a pair in a file counts as run n, and merging resolves repetitions as it does between runs,
    so that a failed repetition does not lose a time.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        if options.arch is None:
            raise UsageError(
                f"{path} does not state the device",
                "give it with --arch, e.g. --arch gfx942",
                code="unknown-hardware",
            )
        self.arch = load_arch(options.arch)
        self.refined = 0
        self._path = path
        self._options = options
        self._problems: dict[GemmProblem, int] = {}
        self._kernels: dict[tuple[str, GemmKernel], int] = {}
        self._statuses: dict[str, int] = {}
        self._messages: dict[int, str] = {}
        self._problem_of_row, self._kernel_of_row, self._status_of_row = array("q"), array("q"), array("b")
        self._latency_ms = array("d")
        self.account = Account(options.strict)
        self._doubtful: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._latency_ms)

    def check(self, kernel: GemmKernel, problem: GemmProblem) -> None:
        """Check that the kernel matches the problem."""
        if (kernel.dtype, kernel.layout) != (problem.dtype, problem.layout):
            what = f"a kernel of {kernel.dtype} {kernel.layout} on {problem.canonical()}"
            raise LeftOut(MISMATCH, what)

    def add(self, where: str, problem: GemmProblem, named: tuple[str, GemmKernel], time: Time) -> None:
        """Add a measured time; `named` is the kernel's name and the kernel that its columns describe."""
        if time.latency_ms < SHORTEST_MS:
            raise LeftOut(BAD_TIME, f"the time is {time.latency_ms:g} ms")
        self._append(problem, named, Status.OK, time.latency_ms)
        self.refined += time.is_refined
        if time.is_doubtful:
            self._doubtful[where] += 1

    def add_failed(self, problem: GemmProblem, named: tuple[str, GemmKernel], status: Status, message: str) -> None:
        """Add a failure."""
        self._messages[len(self)] = message
        self._append(problem, named, status, math.nan)

    def _append(self, problem: GemmProblem, named: tuple[str, GemmKernel], status: Status, latency_ms: float) -> None:
        self.account.use()
        self._problem_of_row.append(self._problems.setdefault(problem, len(self._problems)))
        self._kernel_of_row.append(self._kernels.setdefault(named, len(self._kernels)))
        self._status_of_row.append(self._statuses.setdefault(str(status), len(self._statuses)))
        self._latency_ms.append(latency_ms)

    def set_wrong(self, row: int, message: str) -> None:
        """Mark the result of a row as wrong."""
        self._messages[row] = message
        self._status_of_row[row] = self._statuses.setdefault(str(Status.WRONG_RESULT), len(self._statuses))

    def settle(self) -> None:
        """Refuse the file if no measurement is usable."""
        self.account.settle(str(self._path))

    def warnings(self) -> list[str]:
        """Warnings about the rows."""
        texts = []
        if self.refined:
            texts.append(f"{self._path}: {self.refined} times printed with two decimals are refined from their TFLOPS")
        if self._doubtful:
            count = f"differ by more than 1 % from flops / time in {sum(self._doubtful.values())} rows"
            texts.append(f"{self._path}: tflops {count}, e.g. {next(iter(self._doubtful))}; flops / time is kept")
        return texts

    def tables(self, sha256: str) -> Iterator[pa.Table]:
        """Yield the dataset's rows as tables, in the file's order, with repeated measurements of pairs last."""
        import numpy as np
        import pandas as pd

        problem, kernel = np.array(self._problem_of_row), np.array(self._kernel_of_row)
        pair = problem * len(self._kernels) + kernel
        run_of_row = pd.Series(pair).groupby(pair).cumcount().to_numpy()
        origin = f"{self._path.name}:{sha256[:12]}"
        for index in range(int(run_of_row.max()) + 1):
            rows = np.flatnonzero(run_of_row == index)
            for start in range(0, len(rows), BLOCK_ROWS):
                yield self._part(rows[start : start + BLOCK_ROWS], f"{origin}#{index + 1}" if index else origin)

    def _part(self, rows: Any, run_id: str) -> pa.Table:
        import numpy as np

        hardware = self.arch.hardware.to_dict()
        if self._options.num_cus is not None:
            hardware |= {"num_cus": self._options.num_cus}
        return build_table(
            Pairs(
                list(self._problems),
                np.array(self._problem_of_row)[rows],
                [kernel for _, kernel in self._kernels],
                [name for name, _ in self._kernels],
                np.array(self._kernel_of_row)[rows],
                OP_TYPE,
            ),
            Results(
                np.array(list(self._statuses))[np.array(self._status_of_row)[rows]],
                np.array(self._latency_ms)[rows],
                {"message": [self._messages.get(row) for row in rows.tolist()]},
            ),
            Origin(self.arch.name, None, hardware, run_id),
        )


def named(kernel: GemmKernel) -> tuple[str, GemmKernel]:
    """Return a kernel with its complete name."""
    return kernel_name(kernel), kernel


INCOMPLETE = "with a kernel name whose missing parameters are stated nowhere"
CONTRADICTION = "with a kernel_config that contradicts the kernel's name"


def kernel_of(
    name: object, config: Mapping[str, Any], arch: ArchSpec, parse: Callable[[str], GemmKernel] = parse_kernel_name
) -> GemmKernel:
    """Return the kernel of a name; parameters that a short name omits are taken from a configuration with AMD's fields.

    A configuration does not state vector widths; they are native, as in a full name without them.
    """
    kernel = _parsed(name, arch, parse)
    stated = _stated(config)
    for field, value in stated.items():
        own = getattr(kernel, field)
        # AMD's converter writes padding into configurations of these pipelines, see tile_engine_json.
        is_free = field.startswith("pad_") and kernel.pipeline in MARKED_PADDED_PIPELINES
        if own is not None and own != value and not is_free:
            raise LeftOut(CONTRADICTION, f"{name!r} has {field} {own}, its kernel_config {value}")
    if not kernel.is_complete:
        widths = dict.fromkeys(TRIPLES["vectors"], NATIVE_WIDTH) if stated else {}
        given = {field: value for field, value in {**stated, **widths}.items() if field in kernel.missing}
        kernel = replace(kernel, **given)
    if missing := kernel.missing:
        raise LeftOut(INCOMPLETE, f"{name!r} has no " + ", ".join(missing))
    return kernel


def _parsed(name: object, arch: ArchSpec, parse: Callable[[str], GemmKernel]) -> GemmKernel:
    if not isinstance(name, str):
        raise LeftOut(BAD_KERNEL, f"the kernel's name is {'missing' if name is None else name}")
    try:
        kernel = parse(name.strip())
    except DataError as error:
        raise LeftOut(BAD_KERNEL, error.message) from error
    if kernel.pipeline not in arch.common.pipeline_lds:
        raise LeftOut(BAD_KERNEL, f"unknown pipeline {kernel.pipeline!r} in {name!r}")
    return kernel


def _stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a kernel that a configuration states."""
    tokens = {name: token for token in tokens_of(GemmKernel).values() for name in token.fields}
    stated: dict[str, Any] = {}
    for key, value in config.items():
        field = AMD_WAVES.get(key, key)
        if field in tokens and field not in {"suffix", *TRIPLES["vectors"]} and value is not None:
            token = tokens[field]
            own: Any = bool(value) if token.type is bool and value in (0, 1) else value
            if not token.admits(own):
                raise LeftOut(CONTRADICTION, f"kernel_config has {field} {value!r}")
            stated[field] = token.read(own) if token.type is str else own
    return stated
