"""The record of an operation that is derived from `gemm_universal`: everything that such operations share."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ckh.kernels.declaration import column_tokens
from ckh.kernels.pools import TIMED_NAME
from ckh.kernels.table import column_of
from ckh.ops.base import Encoding, Operation, lazily
from ckh.ops.gemm_universal.features import KERNEL_COLUMNS, problem_columns
from ckh.ops.gemm_universal.kernel import NAMES, GemmKernel
from ckh.ops.gemm_universal.operation import OPERATION, dataset_of, identity_columns, own_columns, problem_of_row
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.schema import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.features.engine import FeatureEngine
    from ckh.kernels.pools import Candidates, KernelList
    from ckh.ops.gemm_universal.kernels.family import KernelFamily

P = TypeVar("P", bound=GemmProblem)
K = TypeVar("K", bound=GemmKernel)

GEMM: Operation[Any, Any] = OPERATION


def sliced_by(field: str, what: str, few: int, many: int) -> dict[str, Callable[[Any], bool]]:
    """Return three slices of problems by a number: below `few`, from `many` on, and in between."""
    number = attrgetter(field)
    return {
        f"few {what}": lambda problem: bool(number(problem) < few),
        what: lambda problem: bool(few <= number(problem) < many),
        f"many {what}": lambda problem: bool(number(problem) >= many),
    }


def derived(
    module: str,
    summary: str,
    kind: type[P],
    family: KernelFamily[K],
    engine: FeatureEngine,
    meanings: Mapping[str, str],
    *,
    table_sizes: tuple[str, ...] = (),
) -> Operation[P, K]:
    """Return the record of an operation, which may replace parts of it.

    The operation's package has `REQUESTED` and the modules `problem_sets` with `SETS` and `measured` with `MEASURED`.
    Its shapes are its problems: other sources of shapes do not state all of their fields. Problems and kernels have the
    fields of a group, which has one pool.

    Args:
        module: name of the record's module.
        summary: what the operation computes, in a few words.
        kind: the class of its problems.
        family: its kernels.
        engine: its features.
        meanings: column of problems -> meaning: of each further text, and of sizes that are more than a problem size.
        table_sizes: sizes that tables of its measurements must have; empty: it has no tables.
    """
    package, pools = module.rpartition(".")[0], family.pools
    sets = lazily(f"{package}.problem_sets:SETS")
    group_of = attrgetter(*pools.kind.group_fields)
    own = {name: token.type for name, token in column_tokens(pools.kind).items() if name in own_columns(pools.kind)}

    def candidates(problem: P, arch: ArchSpec, model: Path, only: KernelList[K] | None = None) -> Candidates[K]:
        return pools.candidates(problem, arch, *group_of(problem), model=model, only=only)

    def load(*given: Any, **named: Any) -> tuple[P, ...]:
        problems: tuple[P, ...] = sets().load(*given, **named)
        return problems

    def shaped() -> object:
        from ckh.shapes.shaped import own_shapes

        return own_shapes(kind)

    def kernel_columns(kernels: Sequence[K], encoding: Encoding) -> dict[str, list[Any]]:
        return {
            **GEMM.kernels.columns(kernels, encoding),
            **{name: column_of(kernels, name).tolist() for name in own},
        }

    def kernel_features(kernels: Sequence[K], encoding: Encoding) -> dict[str, Any]:
        return {
            **GEMM.kernels.features(kernels, encoding),
            **{name: column_of(kernels, name).astype(np.str_ if to is str else np.float64) for name, to in own.items()},
        }

    def formats() -> object:
        from ckh.ops.gemm_universal.readers.gemm_table import TableForm

        return TableForm(kind, pools.parse, table_sizes).formats

    texts = [Column(name, "string", "", meanings[name]) for name in kind.text_columns if name in meanings]
    sizes = [Column(name, "int64", "", meanings.get(name, f"problem size {name}")) for name in kind.size_columns]
    return Operation(
        name=kind.op_type,
        summary=summary,
        prefix=kind.prefix,
        problems=replace(
            GEMM.problems,
            identity=kind.identity(),
            sizes=tuple(kind.size_columns),
            parse=kind.parsed,
            of_row=partial(problem_of_row, kind=kind),
            columns=partial(identity_columns, kind=kind),
            features=partial(problem_columns, kind=kind),
            split_by=kind.identity(),
            load=load,
            set_names=lambda: sets().names(),
            shaped=shaped,
            requested=lazily(f"{package}:REQUESTED"),
        ),
        kernels=replace(
            GEMM.kernels,
            type=pools.kind,
            parse=pools.parse,
            name_parts=NAMES[pools.kind].parts,
            columns=kernel_columns,
            features=kernel_features,
            candidates=candidates,
            listed=candidates,
            searched=lambda: family.searched,
            lists=(lambda: family.lists) if family.are_listed else None,
        ),
        training=replace(
            GEMM.training,
            columns=dataset_of([*texts, *sizes], pools.kind),
            engine=engine,
            input_columns=(*kind.identity(), *KERNEL_COLUMNS, *own),
            legacy_columns=dict,
            model_files={TIMED_NAME: pools.timed_file},
            judged=(),
            formats=formats if table_sizes else None,
        ),
        measured=lazily(f"{package}.measured:MEASURED"),
    )
