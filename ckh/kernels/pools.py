"""Pools: candidate kernels for a group of problems on an architecture."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from ckh.errors import DataError
from ckh.files.jsonfields import model_fields
from ckh.files.untrusted import MOST_MODEL_BYTES, read_bytes
from ckh.kernels.judging import ProblemRules
from ckh.kernels.table import KernelTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import RefusedKernel, Rule, Rules, Verdicts


K = TypeVar("K")
TIMED_NAME = "timed_kernels.json.gz"
_VERSION = 1
_MOST_KERNELS = 1 << 17


@dataclass(frozen=True, slots=True)
class TimedKernels(Generic[K]):
    """Kernels measured on an architecture; compared by architecture and digest.

    `lead` is the score by which a kernel without a time must lead to stand before those with one.
    """

    arch: str
    digest: str  # digest of the file
    kernels: tuple[K, ...] = field(compare=False)  # the kernels, complete, by name
    lead: float = field(default=0.0, compare=False)


def timed_file(arch: str, names: set[str]) -> bytes:
    """Build the content of the file."""
    document = {"version": _VERSION, "arch": arch, "kernels": sorted(names)}
    # No time stamp in the archive: equal models give equal files.
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def with_lead(content: bytes, lead: float) -> bytes:
    """Add the lead that other kernels need to the content of the file."""
    document = {**json.loads(gzip.decompress(content)), "lead": lead}
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def read_timed(path: Path, parse: Callable[[str], K]) -> TimedKernels[K]:
    """Read the file of a model."""
    with model_fields(path) as fields:
        if (version := fields.scalar("version", int)) != _VERSION:
            fields.fail("version", f"is {version}, and this ckh reads {_VERSION}")
        arch, names = fields.scalar("arch", str), fields.strings("kernels")
        lead = fields.number("lead") if fields.has("lead") else 0.0  # without it: by earlier versions
        if not 0 <= lead < inf:
            fields.fail("lead", f"must be at least 0, not {lead}")
        if not len(set(names)) == len(names) <= _MOST_KERNELS:
            fields.fail("kernels", f"must be {_MOST_KERNELS} names at most, each once")
        try:
            kernels = tuple(map(parse, names))
        except (DataError, ValueError) as error:
            fields.fail("kernels", f"must be names of complete kernels: {error}")
        digest = hashlib.sha256(read_bytes(path, MOST_MODEL_BYTES)).hexdigest()
    return TimedKernels(arch, digest, kernels, lead)


_NOT_LISTED = "it is not in the list"
_AS_OBJECTS = 5000  # up to this many kernels are stored as objects, for faster access; larger pools are tables
_POOLS = 256  # cached pools
_FILES = 64


@dataclass(frozen=True, slots=True, eq=False)
class KernelList(Generic[K]):
    """Kernels listed by a user, ranked instead of an architecture's pool."""

    source: str  # the file or other origin, for messages
    kernels: tuple[K, ...]  # the kernels, in the user's order, without duplicates


@dataclass(frozen=True, slots=True, eq=False)
class Candidates(Generic[K]):
    """Kernels that apply to a problem, and the number of others, by the first rule that each violates."""

    pool: Sequence[K]
    """Kernels that only the problem may refuse; the same object for problems of a kind, so that prepared data can
    be cached."""
    chosen: NDArray[np.intp]  # indices in the pool of those that apply, ascending; shape (candidates,)
    refused: dict[str, int]
    """Reason -> number of kernels, of the pool and of those that the architecture does not build."""
    unmeasured: str = ""
    """Their kind, if no such kernel was measured on this architecture, so that its models know none of them; empty
    otherwise."""
    left_out: Mapping[str, frozenset[K]] = field(default_factory=dict)
    """Kernels by kind, e.g. pipeline, that the architecture builds and the model was not trained on."""
    by_problem: Mapping[str, int] = field(default_factory=dict)  # the part of `refused` due to the problem's own rules
    timed: int | None = None
    """Number of the pool's first kernels that have times in the model's training data; None if unknown."""
    rules: tuple[Rule, ...] | None = None  # the rules of problems that chose among the pool; None: others than rules

    @property
    def timed_candidates(self) -> int | None:
        """Number of applicable kernels with times in the training data; None if unknown."""
        return None if self.timed is None else int(np.searchsorted(self.chosen, self.timed))

    @property
    def kernels(self) -> tuple[K, ...]:
        """Applicable kernels."""
        return tuple(self.pool[index] for index in self.chosen.tolist())

    def among(self, kernels: frozenset[K]) -> Candidates[K]:
        """Restrict the applicable kernels to these."""
        inside = np.array([self.pool[index] in kernels for index in self.chosen.tolist()], bool)
        unlisted = {_NOT_LISTED: int((~inside).sum())} if not inside.all() else {}
        left_out = {kind: listed for kind, own in self.left_out.items() if (listed := own & kernels)}
        return replace(self, chosen=self.chosen[inside], refused={**self.refused, **unlisted}, left_out=left_out)


class Knows(Protocol):
    """The kernels known to a model; equal ones share a pool."""

    def reason(self, kernel: Any) -> str:
        """Reason why a kernel is unknown to the model, or an empty string."""

    def new_kind(self, kernel: Any) -> str:
        """Kind of a kernel if the model was trained on no kernel of that kind; empty otherwise."""

    def __hash__(self) -> int:
        """Hash of the content."""


@dataclass(frozen=True, slots=True, eq=False)
class _JudgedPool(Generic[K]):
    """A pool, as returned and as a table; the other fields as in `Candidates`."""

    pool: Sequence[K]
    table: KernelTable[K]
    refused: Counter[str]
    left_out: dict[str, frozenset[K]]
    timed: int | None


class Pools(Generic[K]):
    """The pools of an operation, each prepared once.

    The pool of an architecture has the kernels of its table that violate no rule and that the model knows, in that
    order. They are preceded by the kernels with times in the model's training data, whether in the table or not: rules
    of the architecture do not apply to kernels measured on it.

    Args:
        kind: the class of the kernels.
        rules: their rules.
        table: the candidate kernels of an architecture and a group.
        group: the group of a kernel.
        parse: parses a kernel's complete name.
        name: returns a kernel's complete name.
        knows: returns the kernels known to a model, given its folder, if models do not know all kernels.
    """

    def __init__(
        self,
        kind: type[K],
        rules: Rules[K],
        table: Callable[..., KernelTable[K]],
        group: Callable[[K], tuple[Any, ...]],
        parse: Callable[[str], K],
        name: Callable[[K], str],
        knows: Callable[[Path], Knows | None] = lambda _model: None,
    ) -> None:
        self.kind = kind
        self.rules = rules
        self.table = table
        self._group = group
        self.parse = parse
        self._name = name
        self._knows = knows
        self._judged = lru_cache(maxsize=_POOLS)(self._judge)
        self._judged_list = lru_cache(maxsize=_POOLS)(self._judge_list)
        self._problem_rules = lru_cache(maxsize=_POOLS)(lambda of, arch: ProblemRules(rules.problem, of.table, arch))
        self._read = lru_cache(maxsize=_FILES)(lambda path, _changed: read_timed(path, parse))

    def of(
        self, arch: ArchSpec, *group: Any, model: Path | None = None, only: KernelList[K] | None = None
    ) -> tuple[K, ...]:
        """The pool of a group, restricted to kernels known to the model of a folder, or to a list (`only`)."""
        return tuple(self.sequence(arch, *group, model=model, only=only))

    def sequence(
        self, arch: ArchSpec, *group: Any, model: Path | None = None, only: KernelList[K] | None = None
    ) -> Sequence[K]:
        """Return the pool as cached: a large one as a table."""
        return self._find(model, only, arch, group).pool

    def refused(self, arch: ArchSpec, *group: Any) -> Iterator[RefusedKernel[K]]:
        """Yield the refused kernels of the table with all reasons."""
        return self.rules.refused(self.table(arch, *group), arch)

    def candidates(
        self, problem: object, arch: ArchSpec, *group: Any, model: Path | None = None, only: KernelList[K] | None = None
    ) -> Candidates[K]:
        """Return the applicable kernels known to the model."""
        judged = self._find(model, only, arch, group)
        chosen, reasons = self._problem_rules(judged, arch).judge(problem)
        refused, by_problem = dict((judged.refused + reasons).most_common()), dict(reasons.most_common())
        details = judged.left_out, by_problem, judged.timed, self.rules.problem
        return Candidates(judged.pool, chosen, refused, "", *details)

    def timed_file(self, frame: pd.DataFrame, before: Path | None) -> bytes | None:
        """Content of `timed_kernels.json.gz`: complete kernels with times, or None if names are short."""
        arch = str(frame["arch"].iloc[0])
        is_timed = frame["is_valid"].to_numpy(dtype=bool) & (frame["latency_ms"].to_numpy(dtype=np.float64) > 0)
        kernels = {self.parse(str(name)) for name in frame["kernel"][is_timed].unique()}
        earlier = None if before is None else self._timed(before)
        if earlier is not None and earlier.arch == arch:
            kernels |= set(earlier.kernels)
        names = {self._name(kernel) for kernel in kernels if not self.rules.missing(kernel)}
        return timed_file(arch, names) if names else None

    def _timed(self, model: Path) -> TimedKernels[K] | None:
        """Kernels with times in a model's training data, if stored in its folder."""
        path = model / TIMED_NAME
        return self._read(path, path.stat().st_mtime_ns) if path.is_file() else None

    def _find(
        self, model: Path | None, only: KernelList[K] | None, arch: ArchSpec, group: tuple[Any, ...]
    ) -> _JudgedPool[K]:
        timed = None if model is None else self._timed(model)
        if only is not None:
            return self._judged_list(only, timed, arch, *group)
        return self._judged(None if model is None else self._knows(model), timed, arch, *group)

    def _judge(self, knows: Knows | None, timed: TimedKernels[K] | None, arch: ArchSpec, *group: Any) -> _JudgedPool[K]:
        """Kernels that are built and known, measured ones first, and counts of the others by reason."""
        table = self.table(arch, *group)
        verdicts = self.rules.judge(table, arch)
        table, verdicts, is_timed = self._with_timed(timed, table, verdicts, arch, group)
        built, refused, is_timed = table.take(verdicts.passed), verdicts.counts(), is_timed[verdicts.passed]
        is_known = np.ones(len(built), np.bool_)
        kinds: defaultdict[str, set[K]] = defaultdict(set)
        for number in np.flatnonzero(~is_timed).tolist() if knows else ():
            assert knows is not None
            if reason := knows.reason(built[number]):
                is_known[number] = False
                refused[reason] += 1
            kinds[knows.new_kind(built[number])].add(built[number])
        known = np.flatnonzero(is_known)
        known = known[np.argsort(~is_timed[known], kind="stable")]
        left_out = {kind: frozenset(kinds[kind]) for kind in sorted(kinds) if kind}
        count = int(is_timed.sum()) if timed is not None and timed.arch == arch.name else None
        return _judged(built.take(known), refused, left_out, count)

    def _with_timed(
        self,
        timed: TimedKernels[K] | None,
        table: KernelTable[K],
        verdicts: Verdicts,
        arch: ArchSpec,
        group: tuple[Any, ...],
    ) -> tuple[KernelTable[K], Verdicts, NDArray[np.bool_]]:
        """Append the measured kernels to a table; returns also the verdicts and the mask of measured kernels.

        Kernels measured on another architecture must satisfy this one's rules.
        """
        is_timed = np.zeros(len(table), np.bool_)
        if timed is None:
            return table, verdicts, is_timed
        own = [kernel for kernel in timed.kernels if self._group(kernel) == group]
        place = table.numbers_of(own)
        missing = KernelTable.of(self.kind, [kernel for kernel, at in zip(own, place.tolist(), strict=True) if at < 0])
        is_here = timed.arch == arch.name
        if is_here:
            is_timed[place[place >= 0]] = True
            verdicts = replace(verdicts, number=np.where(is_timed, -1, verdicts.number))
        elif len(missing):
            missing = missing.take(self.rules.judge(missing, arch).passed)
        is_timed = np.concatenate([is_timed, np.full(len(missing), is_here)])
        return table.joined(missing), verdicts.joined(len(missing)), is_timed

    def _judge_list(
        self, only: KernelList[K], timed: TimedKernels[K] | None, arch: ArchSpec, *group: Any
    ) -> _JudgedPool[K]:
        """Listed kernels of the group, measured ones first."""
        were_timed = frozenset(timed.kernels) if timed is not None and timed.arch == arch.name else frozenset()
        own = [kernel for kernel in only.kernels if self._group(kernel) == group]
        outside = len(only.kernels) - len(own)
        refused = Counter({f"it is not a kernel of {' '.join(map(str, group))}": outside} if outside else {})
        broken = {kernel: self.rules.of_arch(kernel, arch)[:1] for kernel in own if kernel not in were_timed}
        refused.update(reason for reasons in broken.values() for reason in reasons)
        own = sorted((kernel for kernel in own if not broken.get(kernel)), key=lambda kernel: kernel not in were_timed)
        count = None if timed is None else sum(kernel in were_timed for kernel in own)
        return _judged(KernelTable.of(self.kind, own), refused, {}, count)


def _judged(
    table: KernelTable[K], refused: Counter[str], left_out: dict[str, frozenset[K]], timed: int | None
) -> _JudgedPool[K]:
    pool = tuple(table) if len(table) <= _AS_OBJECTS else table
    return _JudgedPool(pool, table, refused, left_out, timed)
