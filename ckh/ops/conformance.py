"""Conformance suite of operations: checks that ckh's own operations and those of other packages run as tests.

    import pytest
    from ckh.ops.conformance import CHECKS, Example

    @pytest.mark.parametrize("check", CHECKS)
    def test_operation(check):
        assert list(CHECKS[check](Example(OPERATION, problems, "host"))) == []

A check yields a sentence for each fault.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.bench.computation import Measured
from ckh.features.engine import Depends, dependence
from ckh.ops import operation_of, operation_of_kernel, part_of
from ckh.ops.base import Encoding
from ckh.requested import Requested
from ckh.search.product import Searched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.archs import ArchSpec
    from ckh.kernels.pools import Candidates

_KERNELS = 60  # of a pool that are looked at one by one


@dataclass(frozen=True, slots=True)
class Example:
    """An operation, with problems to check it on: of several layouts, with each optional size, and odd sizes."""

    op: Any
    problems: Sequence[Any]
    arch: str
    """The GPU whose kernels are checked, or `host`."""
    model: Path = Path("nowhere")
    """Folder of a model, for operations whose candidates are those of its training data."""

    @property
    def spec(self) -> ArchSpec:
        """The architecture."""
        return load_arch(self.arch)

    @property
    def measured(self) -> Measured[Any, Any] | None:
        """How kernels are measured, if they are."""
        return part_of(self.op, self.op.measured, Measured)

    def candidates(self) -> Iterator[tuple[Any, Candidates[Any]]]:
        """Yield each problem and its candidates."""
        for problem in self.problems:
            yield problem, self.op.kernels.candidates(problem, self.spec, self.model)

    def kernels(self) -> list[Any]:
        """Return some kernels of the problems' pools."""
        pools = {id(candidates.pool): candidates.pool for _, candidates in self.candidates()}
        return [kernel for pool in pools.values() for kernel in _sample(pool)]


def _sample(pool: Sequence[Any]) -> list[Any]:
    return [pool[index] for index in range(0, len(pool), max(1, len(pool) // _KERNELS))]


def record(example: Example) -> Iterator[str]:
    """Columns are distinct and include identity, sizes and what features read; options are the record's."""
    op = example.op
    names = Counter(op.column_names())
    yield from (f"the column {name} is declared {count} times" for name, count in names.items() if count > 1)
    yield from (f"the record names {name}, which is no column" for name in op.unknown_columns())
    if not {*op.problems.sizes, *op.problems.split_by} <= {*op.problems.identity}:
        yield "sizes and split_by are not all part of the identity"
    part = part_of(op, op.problems.requested, Requested)
    if part is not None and part.has_directions != op.has_directions:
        yield "requests and identity differ in whether there are directions"
    engine = op.training.engine
    if len(set(engine.names)) < len(engine.names) or not {*engine.categorical} <= {*engine.names}:
        yield "features are not distinct, or a category is no feature"


def problems(example: Example) -> Iterator[str]:
    """Text, fields and dataset columns hold the identity; a problem is in one slice of each kind."""
    op = example.op
    columns = op.problems.columns(example.problems)
    rows = [{name: values[row] for name, values in columns.items()} for row in range(len(example.problems))]
    identities = {tuple(row[name] for name in op.problems.identity) for row in rows}
    texts = {problem.canonical() for problem in example.problems}
    if not len(identities) == len(texts) == len(set(example.problems)):
        yield "different problems have the same text or the same identity"
    for problem, row in zip(example.problems, rows, strict=True):
        text = problem.canonical()
        if not text.startswith(op.prefix) or operation_of(text) is not op:
            yield f"{text} is a text of another operation"
        if op.problems.parse(text) != problem or type(problem)(**problem.to_dict()) != problem:
            yield f"{text} is parsed to another problem"
        if op.problems.of_row(row) != problem:
            yield f"the row of {text} is another problem"
        if problem.flops <= 0 or problem.bytes <= 0 or not np.isfinite(op.problems.place(problem)).all():
            yield f"{text} has no operations, no bytes or no place"
        for kind, tests in op.problems.slices.items():
            if sum(bool(test(problem)) for test in tests.values()) != 1:
                yield f"{text} is not in one slice of {kind}"


def names(example: Example) -> Iterator[str]:
    """A kernel's name is its own, and is parsed to it; a kernel fits the problems whose candidate it is."""
    op = example.op
    kernels = example.kernels()
    if not kernels:
        yield "no problem has a kernel"
    if len({op.kernels.name(kernel) for kernel in kernels}) < len(set(kernels)):
        yield "kernels share a name"
    for kernel in kernels:
        name = op.kernels.name(kernel)
        if op.kernels.parse(name) != kernel or operation_of_kernel(kernel) is not op:
            yield f"{name} is parsed to another kernel"
        for spelling in op.kernels.other_names(kernel):
            op.kernels.parse(spelling)
    for problem, candidates in example.candidates():
        for index in candidates.chosen[:: max(1, len(candidates.chosen) // _KERNELS)].tolist():
            if reason := op.kernels.mismatch(candidates.pool[index], problem):
                yield f"a candidate of {problem.canonical()} cannot belong to it: {reason}"


def pool(example: Example) -> Iterator[str]:
    """Candidates are the kernels that no rule refuses one by one, and equal for problems of one key."""
    op = example.op
    by_key: dict[Any, Candidates[Any]] = {}
    for problem, candidates in example.candidates():
        text, chosen = problem.canonical(), candidates.chosen
        if (np.diff(chosen) <= 0).any() or sum(candidates.by_problem.values()) != len(candidates.pool) - len(chosen):
            yield f"the candidates of {text} are not ascending, or others are not counted"
        first = by_key.setdefault(op.kernels.key_of(problem), candidates)
        if first.pool is not candidates.pool or not np.array_equal(first.chosen, chosen):
            yield f"{text} has the key of a problem with other candidates"
        if example.measured is None:
            continue
        is_chosen = set(chosen.tolist())
        for index in range(0, len(candidates.pool), max(1, len(candidates.pool) // _KERNELS)):
            reasons = example.measured.reasons(candidates.pool[index], example.spec, problem)
            if (index in is_chosen) == bool(reasons):
                name = op.kernels.name(candidates.pool[index])
                yield f"{name} is {'' if reasons else 'no '}candidate of {text}: {reasons}"


def columns(example: Example) -> Iterator[str]:
    """Datasets have a row for each kernel, and encode it as predictions do."""
    op, encoding = example.op, Encoding.on(example.arch)
    kernels = example.kernels()
    learned, asked = op.kernels.columns(kernels, encoding), op.kernels.features(kernels, encoding)
    if {len(values) for values in learned.values()} != {len(kernels)} or not {*learned} <= {*op.column_names()}:
        yield "columns of kernels are not rows of the dataset"
    of_problems = op.problems.features(example.problems)
    if shared := {*asked} & {*of_problems}:
        yield f"{', '.join(sorted(shared))} are columns of problems and of kernels"
    for name in {*asked} & {*op.training.input_columns}:
        for row, (data, value) in enumerate(zip(learned[name], np.asarray(asked[name]).tolist(), strict=True)):
            if str(data).removesuffix(".0") != str(value).removesuffix(".0"):
                yield f"{name} of {op.kernels.name(kernels[row])} is {data} in datasets, {value} in predictions"


def features(example: Example) -> Iterator[str]:
    """Features are numbers, the same for one row as for many, and depend on what their formulas read."""
    op, hardware = example.op, example.spec.hardware.to_dict()
    engine = op.training.engine
    kernels = example.kernels()
    depends = np.array([str(kind) for kind in dependence(engine, engine.names)])
    of_kernels, by_problem = op.kernels.features(kernels, Encoding.on(example.arch)), []
    for problem in example.problems:
        of_problem = op.problems.features([problem])
        matrix = engine.matrix(of_problem | of_kernels, hardware)
        by_problem.append(matrix)
        if matrix.shape != (len(kernels), len(engine.names)) or not np.isfinite(matrix).all():
            yield f"features of {problem.canonical()} are not numbers"
            return
        row = engine.matrix(of_problem | op.kernels.features(kernels[-1:], Encoding.on(example.arch)), hardware)
        if not np.array_equal(row[0], matrix[-1]):
            yield f"features of a kernel on {problem.canonical()} depend on the other kernels"
        fixed = np.isin(depends, [Depends.PROBLEM, Depends.HARDWARE])
        for name in np.array(engine.names)[fixed & (matrix != matrix[0]).any(axis=0)]:
            yield f"{name} differs between kernels, but reads none of their columns"
    every = np.array(by_problem)
    fixed = np.isin(depends, [Depends.KERNEL, Depends.HARDWARE])
    for name in np.array(engine.names)[fixed & (every != every[0]).any(axis=(0, 1))]:
        yield f"{name} differs between problems, but reads none of their columns"


def sets(example: Example) -> Iterator[str]:
    """A set has distinct problems of the requested element type, the same each time."""
    op, dtype = example.op, example.problems[0].dtype
    for name in op.problems.set_names():
        loaded = op.problems.load(name, None, dtype)
        if not loaded or len(set(loaded)) < len(loaded) or loaded != op.problems.load(name, None, dtype):
            yield f"the set {name} is empty, has duplicates, or is not the same each time"
        if {problem.dtype for problem in loaded} != {dtype}:
            yield f"the set {name} has problems of another element type than {dtype}"


def loop_ends(example: Example) -> Iterator[str]:
    """Classes of kernels are distinct, and one of a class takes several of its problems."""
    measured = example.measured
    trials = None if measured is None or measured.trials is None else measured.trials()
    if measured is None or trials is None:
        return
    for name, kernels in trials.representatives(example.spec).items():
        if {trials.kernel_class(kernel) for kernel in kernels} != {name}:
            yield f"the class {name} has kernels of another class"
        for kernel in kernels:
            tried = trials.loop_ends(kernel)
            if sum(not measured.reasons(kernel, example.spec, problem) for problem in tried) > 1:
                break
        else:
            yield f"no kernel of {name} takes two problems"


def searched(example: Example) -> Iterator[str]:
    """No rule refuses a kernel that a search proposes."""
    part = part_of(example.op, example.op.kernels.searched, Searched)
    measured = example.measured
    if part is None or measured is None:
        return
    for problem in example.problems[:3]:
        space = part.product(problem, example.spec)
        for base, row in _sample(np.argwhere(space.legal(problem)).tolist()):
            kernel = space.kernel(base, row)
            if reasons := measured.reasons(kernel, example.spec, problem):
                yield f"{example.op.kernels.name(kernel)} is proposed for {problem.canonical()}: {reasons}"


def lists(example: Example) -> Iterator[str]:
    """Kernels written as a list are read again."""
    if example.op.kernels.lists is None:
        return
    form, kernels, read = example.op.kernels.lists(), example.kernels(), set()
    for name, file in form.write(kernels, example.spec, "own").items():
        again = form.read(Path(name), json.loads(file.content))
        read |= set(again.kernels) if file.form == "registry" else set()
    if read != set(kernels):
        yield f"{len(kernels)} kernels were written, {len(read & {*kernels})} of them were read again"


CHECKS: dict[str, Callable[[Example], Iterator[str]]] = {
    check.__name__: check
    for check in (record, problems, names, pool, columns, features, sets, loop_ends, searched, lists)
}
