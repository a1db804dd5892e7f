"""What an operation is to the rest of ckh: one record of its facts and functions.

Datasets, training, evaluation, prediction and measuring ask this record and nothing else, so that a new operation is a
folder with one of these and an entry in `ckh.ops`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ckh.archs import HOST
from ckh.formats import Formats

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.features.engine import FeatureEngine
    from ckh.kernels.judging import ProblemRules
    from ckh.requested import Requested
    from ckh.schema import Column
    from ckh.training import TrainOptions

Kernel = Any  # a frozen dataclass of the operation's; problems are equal and hash by all of their fields too


class Problem(Protocol):
    """What is to be computed, with complete identity."""

    @property
    def dtype(self) -> str:
        """Element type of the operands."""

    @property
    def flops(self) -> int:
        """Operations."""

    @property
    def bytes(self) -> int:
        """Bytes that must move at least."""

    def canonical(self) -> str:
        """Text that holds the whole identity."""

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""


class LoadProblems(Protocol):
    """Reads the problems of a set or file.

    Direction and dtype are the requested ones: a file that states another is refused. None leaves them to the file;
    where that states none, problems are forward and of `default_dtype`.
    """

    def __call__(
        self, source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp32"
    ) -> tuple[Any, ...]:
        """The distinct problems, in order."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How kernels are encoded in data and models.

    Attributes:
        legacy: as AMD's tools do, for a model of theirs.
        is_gpu: as a GPU runs them.
    """

    legacy: bool = False
    is_gpu: bool = False

    @classmethod
    def on(cls, arch: str, *, legacy: bool = False) -> Encoding:
        """The encoding of an architecture's kernels: all but the host's are a GPU's."""
        return cls(legacy, arch != HOST)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Kernels that apply to a problem, and how many do not, by the first rule that each breaks.

    Attributes:
        pool: kernels among which the problem decides; the same object for problems of a kind, so that what is
            prepared for a pool can be kept.
        chosen: those that apply, as numbers in the pool, ascending; shape (candidates,).
        refused: reason -> how many kernels; of the pool and of what the architecture does not build.
    """

    pool: tuple[Kernel, ...]
    chosen: NDArray[np.intp]
    refused: dict[str, int]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Those that apply."""
        return tuple(self.pool[index] for index in self.chosen.tolist())


def choose(problem: Problem, pool: tuple[Kernel, ...], rules: ProblemRules, refused: Mapping[str, int]) -> Candidates:
    """The candidates of a pool.

    Args:
        problem: what is to be computed.
        pool: kernels that the architecture builds.
        rules: the rules of problems over them.
        refused: why the architecture refuses others, and how many.
    """
    chosen, reasons = rules.judge(problem)
    return Candidates(pool, chosen, dict((Counter(refused) + reasons).most_common()))


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An operation.

    Attributes:
        name: `op_type` in data and models.
        summary: what it computes, in a few words.
        prefix: what the canonical texts of its problems begin with, and those of no other operation.
        kernel_type: the class of its kernels.
        columns: the dataset's columns, in order.
        identity: those that make the complete identity of a problem.
        sizes: those that are sizes, and never negative.
        model_per: those that all rows of a model's training data agree in, besides the architecture.
        engine: its features.
        input_columns: the dataset columns that the features read.
        parse_problem: a problem from its canonical text; raises `UsageError`.
        problem_of_row: a problem from a dataset row.
        problem_columns: dataset columns of problems, a list each.
        problem_features: raw columns of problems for the features, a row each.
        parse_kernel: a kernel from its name; raises `DataError`.
        kernel_name: a kernel's complete name.
        other_names: further names that a kernel goes by.
        kernel_columns: dataset columns of kernels, without the name, in the encoding of the data.
        kernel_features: raw columns of kernels for the features, in the encoding of a model.
        legacy_columns: dataset columns as models of AMD's tools were trained with.
        mismatch: why a kernel cannot be a kernel for a problem at all; empty if it can.
        candidates: the kernels for a problem on an architecture, given the folder of the model that will rank them.
        candidates_key: what `candidates` depends on in a problem: those with one key have one pool, and the same chosen
            of it.
        slices: kind -> slice -> whether a problem is in it, for evaluation. The slices of a kind do not overlap.
        kernel_slice: the dataset column by which efficiency is also reported, among the kernels of one value.
        place: a problem as a point, for the nearest-problem baseline.
        split_by: dataset columns by which cross-validation holds rows out: those of a problem, or fewer, where problems
            that differ in the others would give each other's answers away.
        train_defaults: how its models are trained unless it is said, for a number of rows.
        model_files: further files of a model's directory: the name of each, and its content from the training rows.
        load_problems: problems of a set or file.
        set_names: names of the problem sets.
        formats: the formats of measurements that are this operation's alone.
        requested: how its problems are requested on a command line; None: in files and sets alone.
        measured: how kernels are built and measured, a `ckh.bench.computation.Measured`; None: they are not.
        searched: which kernels a search may propose, a `ckh.search.kernels.product.Searched`; None: there is no space.
        exported: how its models become C, a `ckh.export.groups.Exported`; None: they do not.
    """

    name: str
    summary: str
    prefix: str
    kernel_type: type
    columns: tuple[Column, ...]
    identity: tuple[str, ...]
    sizes: tuple[str, ...]
    model_per: tuple[str, ...]
    engine: FeatureEngine
    input_columns: tuple[str, ...]
    parse_problem: Callable[[str], Any]
    problem_of_row: Callable[[Mapping[str, Any]], Any]
    problem_columns: Callable[[Sequence[Any]], dict[str, list[Any]]]
    problem_features: Callable[[Sequence[Any]], dict[str, Any]]
    parse_kernel: Callable[[str], Kernel]
    kernel_name: Callable[[Kernel], str]
    other_names: Callable[[Kernel], tuple[str, ...]]
    kernel_columns: Callable[[Sequence[Kernel], Encoding], dict[str, list[Any]]]
    kernel_features: Callable[[Sequence[Kernel], Encoding], dict[str, Any]]
    legacy_columns: Callable[[Mapping[str, Any]], dict[str, Any]]
    mismatch: Callable[[Kernel, Any], str]
    candidates: Callable[[Any, ArchSpec, Path], Candidates]
    candidates_key: Callable[[Any], Hashable]
    slices: dict[str, dict[str, Callable[[Any], bool]]]
    kernel_slice: str
    place: Callable[[Any], list[float]]
    split_by: tuple[str, ...]
    train_defaults: Callable[[int], TrainOptions]
    model_files: Mapping[str, Callable[[pd.DataFrame], bytes]]
    load_problems: LoadProblems
    set_names: Callable[[], tuple[str, ...]]
    formats: Callable[[], Formats] = Formats
    requested: Callable[[], Requested[Any]] | None = None
    measured: Callable[[], object] | None = None
    searched: Callable[[], object] | None = None
    exported: Callable[[], object] | None = None

    @property
    def has_directions(self) -> bool:
        """Whether problems have a direction, the column `variant`."""
        return "variant" in self.identity

    def column_names(self) -> tuple[str, ...]:
        """Names of the dataset's columns, in order."""
        return tuple(column.name for column in self.columns)


def amd_options(_rows: int) -> TrainOptions:
    """AMD's parameters of LightGBM, whatever the size of the data."""
    from ckh.training import TrainOptions

    return TrainOptions()
