"""The record of an operation: its facts and functions.

Datasets, training, evaluation, prediction and measuring use this record only, so a new operation is a folder with a
record and an entry in `ckh.ops`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from ckh.archs import HOST
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from dataclasses import Field
    from pathlib import Path

    import pandas as pd

    from ckh.archs import ArchSpec
    from ckh.features.engine import FeatureEngine
    from ckh.files.account import Account
    from ckh.kernels.lists import ListFormat, RuleSets
    from ckh.kernels.pools import Candidates, KernelList, Knows
    from ckh.requested import Requested
    from ckh.schema import Column
    from ckh.training import TrainOptions


class Kernel(Protocol):
    """A kernel: a frozen dataclass of all its parameters, hashable."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __hash__(self) -> int: ...

    def __lt__(self, other: Any, /) -> bool: ...


class Problem(Protocol):
    """A problem to compute, with complete identity."""

    @property
    def dtype(self) -> str:
        """Element type of the operands."""

    @property
    def flops(self) -> int:
        """Number of floating-point operations."""

    @property
    def bytes(self) -> int:
        """Minimum number of bytes to move."""

    def canonical(self) -> str:
        """Text that holds the complete identity."""

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""


P_co = TypeVar("P_co", covariant=True)


class LoadProblems(Protocol[P_co]):
    """Load the problems of a set or file.

    `variant` and `dtype` are the requested direction and element type: a file that states others is refused. None takes
    them from the file; problems without them are forward and of `default_dtype`. Entries that are not understood are
    counted in `account`; without one, a warning describes them.
    """

    def __call__(
        self,
        source: str,
        variant: str | None,
        dtype: str | None,
        default_dtype: str = "fp32",
        *,
        account: Account | None = None,
    ) -> tuple[P_co, ...]:
        """Distinct problems, in order."""


class Measure(StrEnum):
    """Measures of accuracy.

    EFFICIENCY is the best measured time divided by the time of the choice: mean and tenth percentile. HITS are shares
    of problems whose measured winner ranks first, and in the top five.
    """

    EFFICIENCY = "efficiency"
    HITS = "hits"


MIN_PROBLEMS_OF_WORTH = 30  # for an accuracy that an answer states


@dataclass(frozen=True, slots=True)
class Worth:
    """Evaluated accuracy of a substitute model or the analytic estimate (`benchmarks/transfer.py`).

    Attributes:
        problems: number of evaluated problems.
        of: problem column -> value for which the accuracy is valid, e.g. the direction.
        target: the GPU whose kernels were chosen.
        on: what they are, in words.
        measure: kind of the figures.
        figures: mean and tenth percentile of efficiency, or hit rates of the first and the first five.
        interval: 95 % confidence interval of the first figure.
        random: first figure for a random choice; None: unknown.
        source: GPU of the model that chose; empty: the analytic estimate chose.
        held_out: False if the problems shaped the model or the estimate.
    """

    of: Mapping[str, str]
    target: str
    problems: int
    on: str
    figures: tuple[float, float]
    interval: tuple[float, float]
    random: float | None = None
    measure: Measure = Measure.EFFICIENCY
    source: str = ""
    held_out: bool = True

    def stated(self, source: str, target: str) -> str | None:
        """Text for answers on GPU `target` by a model of GPU `source`; None: unproven there.

        An accuracy is stated if it is of the same pair of GPUs, and of enough problems that shaped nothing.
        """
        is_same = (self.source, self.target) == (source, target)
        return str(self) if is_same and self.held_out and self.problems >= MIN_PROBLEMS_OF_WORTH else None

    def __str__(self) -> str:
        low, high = (100 * bound for bound in self.interval)
        first, second = (100 * figure for figure in self.figures)
        chance = "" if self.random is None else f"; random choice {100 * self.random:.1f} %"
        gpus = f"{self.source} → {self.target}" if self.source else self.target
        data = f"from {self.problems:,} {self.on}, {gpus} (95 % CI {low:.1f}–{high:.1f} %{chance})"
        if self.measure is Measure.HITS:
            return f"fastest kernel ranked first in {first:.1f} %, in the top five in {second:.1f} %, {data}"
        return f"expected efficiency {first:.1f} % (P10 {second:.1f} %), {data}"

    def holds_for(self, problem: Problem) -> bool:
        """True if this accuracy was evaluated on problems like this one."""
        return all(str(getattr(problem, name)) == value for name, value in self.of.items())


@dataclass(frozen=True, slots=True)
class TiledSizes:
    """A problem as matrix products that kernels cover with tiles: M, N and K of each, and their number."""

    m: int
    n: int
    k: int
    batches: int

    def tiled_m(self, tile_m: Any) -> Any:  # noqa: ARG002 - others need it
        """M of all products that share N and K, of several in whole tiles of a height."""
        return self.m


@dataclass(frozen=True, slots=True)
class GroupedSizes(TiledSizes):
    """Products that share N and K, which tiles cover one by one; `m` is the sum of their M."""

    groups: Sequence[tuple[int, int]]  # M and number of the products

    def tiled_m(self, tile_m: Any) -> Any:
        """M in whole tiles of all products."""
        return sum(-(-m // tile_m) * tile_m * count for m, count in self.groups)


@dataclass(frozen=True, slots=True)
class EstimatedProduct:
    """One of several products that a problem has a kernel for each; its time is their sum.

    Attributes:
        dtype: element type of its operands.
        bytes: that it moves at least.
        sizes: what tiles cover.
        kernels: its part of each of a pool's kernels.
        num_cus: compute units of the device, 0 for those of the GPU that is asked about.
    """

    dtype: str
    bytes: int
    sizes: TiledSizes
    kernels: Callable[[Sequence[Any]], Sequence[Any]]
    num_cus: int = 0


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoding of kernels in data and models.

    Attributes:
        legacy: the encoding of AMD's tools, for their models.
        is_gpu: the encoding of GPU kernels.
    """

    legacy: bool = False
    is_gpu: bool = False

    @classmethod
    def on(cls, arch: str, *, legacy: bool = False) -> Encoding:
        """Encoding of an architecture's kernels."""
        return cls(legacy, arch != HOST)


Part: TypeAlias = "Callable[[], object]"  # returns a value of a higher layer; `ckh.ops.part_of` checks its type
P = TypeVar("P", bound=Problem)
K = TypeVar("K", bound=Kernel)


def _default_options(rows: int) -> TrainOptions:
    """Default options for a number of rows."""
    from ckh.training import sized_options

    return sized_options(rows)


def lazily(name: str) -> Callable[[], Any]:
    """Return a function that imports the part `package.module:NAME` of a record on first use."""
    module, _, attribute = name.partition(":")
    return lambda: getattr(import_module(module), attribute)


def called(name: str) -> Callable[..., Any]:
    """Return a function that calls `package.module:NAME`, which is imported at the first call."""
    part = lazily(name)

    def call(*given: Any, **named: Any) -> Any:
        return part()(*given, **named)

    return call


def having(name: str, value: object) -> Callable[[Any], bool]:
    """Return the test whether a field of a problem has a value, for slices."""
    return lambda problem: bool(getattr(problem, name) == value)


def _all_needed(_rows: pd.DataFrame) -> tuple[float, float]:
    return 1.0, 1.0


def _no_names(_kernel: object) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class Problems(Generic[P]):
    """The problems of an operation.

    Attributes:
        identity: dataset columns that make the complete identity of a problem.
        sizes: the identity columns that are non-negative sizes.
        parse: parses a problem from its canonical text; raises `UsageError`.
        of_row: builds a problem from a dataset row.
        columns: dataset columns of problems, one list per column.
        features: raw columns of problems that the features read, one row per problem.
        place: maps a problem to a point, for the nearest-problem baseline.
        split_by: dataset columns that group rows for cross-validation: the identity, or fewer where problems that
            differ only in the other columns would leak each other's answers.
        load: loads the problems of a set or file.
        set_names: names of the problem sets.
        slices: kind -> slice -> membership test, for evaluation. Slices of one kind do not overlap.
        grows_with: the size in which work is monotonic with all else equal, such as the rows of a matrix product: a
            kernel needs no more time for a smaller value; empty: none.
        batch: the field that distinguishes problems of one layer; empty: `grows_with`.
        tried: limits a problem to what the tuners of its dataset rows tried; None: they tried all candidates.
        tiled: maps a problem to the matrix products that kernels cover with tiles; None: kernels have no tiles.
        products: of problems that may need several kernels, what each computes, or None; None: one computes all.
        requested: how problems are requested on a command line; None: only by files and sets.
        shaped: a `ckh.shapes.shaped.Shaped`, converts shapes of models and logs to problems; None: not supported.
    """

    identity: tuple[str, ...]
    sizes: tuple[str, ...]
    parse: Callable[[str], P]
    of_row: Callable[[Mapping[str, Any]], P]
    columns: Callable[[Sequence[P]], dict[str, list[Any]]]
    features: Callable[[Sequence[P]], dict[str, Any]]
    place: Callable[[P], list[float]]
    split_by: tuple[str, ...]
    load: LoadProblems[P]
    set_names: Callable[[], tuple[str, ...]]
    slices: Mapping[str, Mapping[str, Callable[[P], bool]]] = field(default_factory=dict)
    grows_with: str = ""
    batch: str = ""
    tiled: Callable[[P], TiledSizes] | None = None
    products: Callable[[P], Sequence[EstimatedProduct | None]] | None = None
    tried: Callable[[P, pd.DataFrame], P] | None = None
    requested: Callable[[], Requested[P]] | None = None
    shaped: Part | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Kernels(Generic[P, K]):
    """The kernels of an operation.

    Attributes:
        type: the class of its kernels.
        parse: parses a kernel name; raises `DataError`.
        name: returns a kernel's complete name.
        columns: dataset columns of kernels, without the name, in the encoding of the data.
        features: raw columns of kernels that the features read, in the encoding of a model.
        mismatch: reason why a kernel cannot belong to a problem at all, such as another dtype; empty if it can.
        candidates: the kernels for a problem on an architecture, given the folder of the model that will rank them.
        key_of: the part of a problem that `candidates` depends on: problems of one key share a pool and its applicable
            kernels.
        slice_column: the dataset column by whose values efficiency is also reported, among kernels of the same value.
        listed: `candidates` from a user's list of kernels, whether or not in the architecture's pool; None: the user's
            kernels are looked up among `candidates`.
        name_parts: the parts of `name`, each with the fields that it states, so that many names
            are made of few parts; the first states all other fields. Empty: names are made one by one.
        other_names: aliases of a kernel's name.
        knows: the kernels in the training data of the model in a folder; None: models know all kernels.
        searched: a `ckh.search.product.Searched`, the kernels that a search may propose; None: no search space.
        lists: AMD's file formats for lists of kernels; None: none.
        rule_sets: named sets of kernels; None: none.
    """

    type: type[K]
    parse: Callable[[str], K]
    name: Callable[[K], str]
    columns: Callable[[Sequence[K], Encoding], dict[str, list[Any]]]
    features: Callable[[Sequence[K], Encoding], dict[str, Any]]
    mismatch: Callable[[K, P], str]
    candidates: Callable[[P, ArchSpec, Path], Candidates[K]]
    key_of: Callable[[P], Hashable]
    slice_column: str
    listed: Callable[[P, ArchSpec, Path, KernelList[K]], Candidates[K]] | None = None
    name_parts: tuple[tuple[tuple[str, ...], Callable[[K], str]], ...] = ()
    other_names: Callable[[K], tuple[str, ...]] = _no_names
    knows: Callable[[Path], Knows | None] | None = None
    searched: Part | None = None
    lists: Callable[[], ListFormat] | None = None
    rule_sets: Callable[[], RuleSets[K]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """Datasets and models of an operation.

    Attributes:
        columns: the dataset's columns, in order.
        model_per: columns that are constant in a model's training data, besides the architecture.
        engine: the feature engine.
        input_columns: the dataset columns that the features read.
        legacy_columns: dataset columns in the encoding that models of AMD's tools were trained on.
        defaults: default training options for a number of rows.
        model_files: further files of a model's directory: file name -> function of the training rows and the folder of
            the continued model (None without one) that returns the content. No content: no such file.
        needed: shares of rows' operations and bytes that their kernels cannot avoid, of the columns `needed_columns`;
            by default all. Times are held against the peak rates of these (`ckh.data.peaks`).
        needed_columns: columns that `needed` reads.
        timed: number of top-ranked kernels whose times are predicted, where the data hold only the fastest kernels of a
            problem; 0: all kernels.
        estimated: of each matrix product of a problem, in the order of `estimate.PROBLEM_INPUTS`, names of columns
            derived by the engine, where scores may have the estimate; empty: there are few complete times.
        judged: evaluated accuracy on unmeasured GPUs, of substitute models and of the analytic estimate.
        formats: a `ckh.data.formats.Formats`, the file formats of measurements specific to this operation.
    """

    columns: tuple[Column, ...]
    model_per: tuple[str, ...]
    engine: FeatureEngine
    input_columns: tuple[str, ...]
    legacy_columns: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    defaults: Callable[[int], TrainOptions] = _default_options
    model_files: Mapping[str, Callable[[pd.DataFrame, Path | None], bytes | None]] = field(default_factory=dict)
    needed: Callable[[pd.DataFrame], tuple[Any, Any]] = _all_needed
    needed_columns: tuple[str, ...] = ()
    timed: int = 0
    estimated: tuple[tuple[str, ...], ...] = ()
    judged: tuple[Worth, ...] = ()
    formats: Part | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Operation(Generic[P, K]):
    """An operation.

    Attributes:
        name: `op_type` in data and models.
        summary: what it computes, in a few words.
        prefix: unique prefix of the canonical texts of its problems.
        problems: its problems.
        kernels: its kernels.
        training: its datasets and models.
        measured: a `ckh.bench.computation.Measured`, how kernels are built and measured; None: not measured.
        exported: a `ckh.export.groups.Exported`, how its models are exported to C; None: not exported.
        consumers: a `ckh.export.consumers.Consumers`, programs that consume its choices; None: none known.
    """

    name: str
    summary: str
    prefix: str
    problems: Problems[P]
    kernels: Kernels[P, K]
    training: Training
    measured: Part | None = None
    exported: Part | None = None
    consumers: Part | None = None

    @property
    def apart(self) -> tuple[str, ...]:
        """Columns that keep rows of one problem apart: the run, if only others measure, whose runs do not compare."""
        return ("run_id",) if self.measured is None else ()

    @property
    def has_directions(self) -> bool:
        """True if problems have a direction, the column `variant`."""
        return "variant" in self.problems.identity

    def layer(self, problem: P) -> P:
        """The problem at batch size one, to identify layers; unchanged without a batch."""
        name = self.problems.batch or self.problems.grows_with
        return replace(problem, **{name: 1}) if name else problem  # type: ignore[type-var]

    def padded(self, problem: P) -> P:
        """The padded problem to use if no kernel applies (`Requested.padded`); unchanged without padding."""
        return problem if self.problems.requested is None else self.problems.requested().padded(problem)

    def unknown_columns(self) -> list[str]:
        """Return column names of the record that are not columns of the dataset."""
        named = (
            *self.problems.identity,
            *self.problems.sizes,
            *self.training.model_per,
            *self.problems.split_by,
            *self.training.input_columns,
            self.kernels.slice_column,
        )
        return sorted({*named} - {*self.column_names()})

    def column_names(self) -> tuple[str, ...]:
        """Names of the dataset's columns, in order."""
        return tuple(column.name for column in self.training.columns)


AnyOperation: TypeAlias = Operation[Problem, Kernel]  # of the registry, without static types of problem and kernel
