"""Plan of a run of bench: which kernels are measured on which problems, in which order.

Plans depend only on the seed and the problems, so that resumed runs and runs with more problems make the same choices.
A random sample of a problem's kernels is a prefix of their shuffled order.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ckh.bench.planning.candidates import without_refused
from ckh.errors import NoKernelError, UsageError
from ckh.files.untrusted import read_text
from ckh.ops import operation_of_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.bench.planning.candidates import CandidateSource
    from ckh.kernels.judging import RefusedKernel, Verdicts
    from ckh.ops.base import Kernel, Problem

ALL = "all"
SAMPLE = "sample:"
SEARCH = "search:"  # prefix of the kernels setting in the journal of a search
_COUNTED = re.compile(rf"{SAMPLE}([1-9]\d*)")
_HINT = "all, sample:N, a pattern such as '*_compv3_*', or a file with one kernel name a line"


@cache
def full_name(kernel: Kernel) -> str:
    """Complete name of a kernel of any operation."""
    return operation_of_kernel(kernel).kernels.name(kernel)


class PoolKernels(Sequence[Any]):
    """Kernels of a pool by index, in an order: plans with tens of millions of pairs store only these arrays."""

    def __init__(self, pool: Sequence[Kernel], numbers: NDArray[np.intp]) -> None:
        self.pool, self.numbers = pool, numbers

    @classmethod
    def of(cls, kernels: Sequence[Kernel]) -> PoolKernels:
        """Convert a sequence of kernels, which becomes its own pool unless it is a `PoolKernels` already."""
        return kernels if isinstance(kernels, cls) else cls(kernels, np.arange(len(kernels)))

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Kernel: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Kernel, ...]: ...

    def __getitem__(self, place: int | slice) -> Kernel | tuple[Kernel, ...]:
        if isinstance(place, slice):
            return tuple([self.pool[number] for number in self.numbers[place].tolist()])
        return self.pool[int(self.numbers[place])]

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self[:] == tuple(other)

    __hash__ = None  # type: ignore[assignment] # nothing needs it


@dataclass(frozen=True, slots=True)
class Task:
    """A problem and its kernels in order of measurement."""

    problem: Any
    kernels: Sequence[Kernel]


@dataclass(frozen=True, slots=True)
class Plan:
    """The pairs to measure."""

    tasks: tuple[Task, ...]
    refused: dict[str, int]
    groups: dict[str, tuple[int, int]] = field(default_factory=dict)
    origin: str = ""
    padded: dict[Any, Any] = field(default_factory=dict)
    """Padded problems that are measured instead of others, to which no kernel applies."""
    no_kernel: dict[Any, str] = field(default_factory=dict)
    """Problems without a kernel, each with the first reason."""

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return sum(len(task.kernels) for task in self.tasks)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Distinct kernels, in order of first use."""
        # Tasks share pools, and hashing a kernel is slow.
        distinct: dict[Kernel, None] = {}
        seen: dict[int, NDArray[np.bool_]] = {}
        for task in self.tasks:
            part = PoolKernels.of(task.kernels)
            is_known = seen.setdefault(id(part.pool), np.zeros(len(part.pool), np.bool_))
            new = part.numbers[~is_known[part.numbers]]
            is_known[new] = True
            distinct |= dict.fromkeys([part.pool[number] for number in new.tolist()])
        return tuple(distinct)

    def without(self, is_done: Callable[[str, str], bool]) -> Plan:
        """The plan without finished pairs, by canonical problem and kernel name."""
        left = (
            Task(task.problem, tuple(k for k in task.kernels if not is_done(canonical, full_name(k))))
            for task in self.tasks
            for canonical in [task.problem.canonical()]
        )
        return replace(self, tasks=tuple(left))

    def with_first(self, kernel_of: Callable[[Any], Kernel | None]) -> Plan:
        """The plan with a further kernel of each problem, which is measured first; None: no such kernel."""
        tasks = []
        for task in self.tasks:
            first = kernel_of(task.problem)
            others = (kernel for kernel in task.kernels if kernel != first)
            tasks.append(task if first is None else Task(task.problem, (first, *others)))
        return replace(self, tasks=tuple(tasks))

    def joined(self, other: Plan) -> Plan:
        """The plan with the pairs of another one behind its own."""
        kernels = {task.problem: dict.fromkeys(task.kernels) for task in self.tasks}
        for task in other.tasks:
            kernels.setdefault(task.problem, {}).update(dict.fromkeys(task.kernels))
        return replace(self, tasks=tuple(Task(problem, tuple(own)) for problem, own in kernels.items() if own))

    def pair_names(self) -> frozenset[tuple[str, str]]:
        """The pairs, by canonical problem and kernel name."""
        return frozenset(
            (canonical, full_name(kernel))
            for task in self.tasks
            for canonical in [task.problem.canonical()]
            for kernel in task.kernels
        )


def make_plan(
    problems: Sequence[Problem],
    kernels: str,
    arch: ArchSpec,
    seed: int,
    candidates: CandidateSource[Any, Any],
    pad: Callable[[Any], Problem] = lambda problem: problem,
    refused_by: Callable[[Sequence[Kernel]], Verdicts | None] = lambda _: None,
) -> Plan:
    """Plan problems in random order, each with its applicable kernels in random order.

    `kernels` is "all", "sample:N" (N of each problem's kernels), a pattern for kernel names, or a file of them. A
    problem without a kernel is measured as `pad` makes it, if that has one. `refused_by` returns which kernels a device
    cannot build; None: none known.
    """
    groups = dict.fromkeys(candidates.group(problem) for problem in problems)
    pools: dict[Any, Sequence[Kernel]] = {}
    unbuilt: dict[Any, tuple[RefusedKernel[Any], ...]] = {}
    for group in groups:
        pools[group], unbuilt[group] = candidates.of(*group, arch)
        if (verdicts := refused_by(pools[group])) is not None:
            pools[group], of_device = without_refused(pools[group], verdicts)
            unbuilt[group] += of_device
    every = [*chain(*pools.values()), *(kernel.kernel for kernel in chain(*unbuilt.values()))]
    wants, limit = _parse_choice(kernels, every)
    refusals = {
        group: Counter(kernel.reasons[0] for kernel in pool if wants(kernel.kernel)) for group, pool in unbuilt.items()
    }
    wanted = {group: tuple(filter(wants, pool)) for group, pool in pools.items()}
    rules = {group: candidates.problem_rules(pool, arch) for group, pool in wanted.items()}
    refused: Counter[str] = Counter()
    by_problems: Counter[str] = Counter()
    tasks: dict[Any, Task] = {}
    padded, no_kernel = dict[Any, Any](), dict[Any, str]()
    for own in problems:
        group, problem = candidates.group(own), own
        refused.update(refusals[group])
        applicable, of_problem = rules[group].judge(own)
        if not len(applicable) and (wider := pad(own)) != own and len((of_wider := rules[group].judge(wider))[0]):
            problem = padded[own] = wider
            applicable, of_problem = of_wider
        by_problems.update(of_problem)
        in_pool = applicable.tolist()
        random.Random(f"{seed} {problem.canonical()}").shuffle(in_pool)
        chosen = in_pool[:limit]
        tasks[problem] = Task(problem, PoolKernels(wanted[group], np.array(chosen, np.intp)))
        if not chosen:
            no_kernel[own] = next(iter((of_problem or refusals[group]).most_common(1)), ("no kernel is chosen", 0))[0]
    in_order = list(tasks.values())
    random.Random(seed).shuffle(in_order)
    counts = {" ".join(map(str, group)): (len(pools[group]), len(unbuilt[group])) for group in groups}
    all_refused = dict((refused + by_problems).most_common())
    measured = tuple(task for task in in_order if task.kernels)
    plan = Plan(measured, all_refused, counts, candidates.origin, padded, no_kernel)
    if not plan.tasks:
        why = next((reason for reason, _ in (by_problems or refused).most_common(1)), "no kernel is chosen")
        raise NoKernelError(f"no kernel of {arch.name} applies to any of the {len(problems)} problems: {why}")
    return plan


def _parse_choice(text: str, known: Sequence[Kernel]) -> tuple[Callable[[Kernel], bool], int | None]:
    """Return a filter of kernels, and the number of random ones per problem; None: all."""
    if text == ALL:
        return lambda _: True, None
    if text.startswith(SAMPLE):
        counted = _COUNTED.fullmatch(text)
        if counted is None:
            raise UsageError(f"--kernels {text!r} has no number of kernels", _HINT, code="bad-number")
        return lambda _: True, int(counted[1])
    if Path(text).is_file():
        chosen = _read_kernels(Path(text), known)
    else:
        chosen = {k for k in known if any(fnmatchcase(name, text) for name in _names_of(k))}
        if not chosen:
            raise UsageError(
                f"--kernels {text!r} matches none of {len(known)} kernels and is not a file", _HINT, code="no-match"
            )
    return chosen.__contains__, None


def _read_kernels(path: Path, known: Sequence[Kernel]) -> set[Kernel]:
    lines = read_text(path).splitlines()
    by_name = {name: kernel for kernel in known for name in _names_of(kernel)}
    chosen = set()
    for number, line in enumerate(lines, 1):
        name = line.partition("#")[0].strip()
        if name and name not in by_name:
            hint = "--registry reads JSON" if name.startswith("{") else ""
            raise UsageError(f"{path}:{number}: {name!r:.80} is not in their pool", hint, code="unknown-kernel")
        if name:
            chosen.add(by_name[name])
    if not chosen:
        raise UsageError(f"{path} has no kernels", code="empty")
    return chosen


def _names_of(kernel: Kernel) -> tuple[str, ...]:
    return full_name(kernel), *operation_of_kernel(kernel).kernels.other_names(kernel)
