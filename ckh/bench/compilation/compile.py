"""Parallel compilation of kernels with a content-addressed cache.

A compiler that was killed, or ran out of memory or disk space, says nothing about its kernel: it is run again at the
end, without others in parallel, and if that fails too, the next time the kernel is needed. A unit of several kernels is
retried as a whole first, then kernel by kernel.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.unit import UnsupportedKernelError, chosen, remarks_of, similarity
from ckh.bench.compilation.kernel_cache import CachedLibrary, Compilation, KernelCache, Part, fault
from ckh.bench.compilation.toolchain import require_toolchain, run_compiler
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.limits import DEFAULT_COMPILE_TIMEOUT_S
from ckh.errors import CacheError
from ckh.kernels.compiled import add_compiled
from ckh.ops import operation, operation_of_kernel
from ckh.schema import Status
from ckh.text.log import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ckh.bench.compilation.binary import Binary
    from ckh.bench.compilation.toolchain import CompilerRun
    from ckh.bench.devices.device import Device
    from ckh.ops.base import AnyOperation, Kernel


OTHERS = ""  # kind of all kernels without a constant for theirs


def kind_of(kernel: Kernel) -> str:
    """Kind of a kernel, e.g. its pipeline; kernels of a kind take similarly long to compile."""
    return str(getattr(kernel, operation_of_kernel(kernel).kernels.slice_column, OTHERS))


@dataclass(frozen=True, slots=True)
class CompileCosts:
    """Compile times of kernels of an operation; `seen` has mean seconds and number of those compiled here, by kind."""

    usual: Mapping[str, float]  # default seconds by kind
    seen: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    @classmethod
    def of_device(cls, device: Device, op: AnyOperation) -> CompileCosts:
        """Compile times of a device's kernels on this machine."""
        return cls(device.compile_s(op), KernelCache().seconds_by_kind(device.arch.name, op.name))

    @property
    def seen_s(self) -> float | None:
        """Mean of the kernels compiled here; None: there were none."""
        kernels = sum(count for _, count in self.seen.values())
        return sum(seconds * count for seconds, count in self.seen.values()) / kernels if kernels else None

    def of(self, kernel: Kernel) -> float:
        """Seconds for a kernel: the mean of its kind here, else the constant scaled by this machine's speed."""
        kind = kind_of(kernel)
        return self.seen[kind][0] if kind in self.seen else self._usual(kind) * self._slower

    def weights(self, kernels: list[Kernel]) -> list[float]:
        """Share of each kernel in the compile time of a unit."""
        usual = [self._usual(kind_of(kernel)) for kernel in kernels]
        return [seconds / sum(usual) for seconds in usual]

    def _usual(self, kind: str) -> float:
        return self.usual.get(kind, self.usual.get(OTHERS, 0.0))

    @property
    def _slower(self) -> float:
        """Ratio of this machine's compile times to the constants, for kernels compiled here."""
        expected = sum(self._usual(kind) * count for kind, (_, count) in self.seen.items())
        took = sum(seconds * count for seconds, count in self.seen.values())
        return took / expected if expected else 1.0


_FAILED = {Status.COMPILE_ERROR, Status.COMPILE_INTERRUPTED}
_UNIT_SHARE = 0.4  # share of the compiler's CPU time that a unit may need by its estimate
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Built:
    """Result of compiling a kernel's source: a library, or a status with the reason."""

    status: Status
    library: str
    source_hash: str
    message: str = ""
    binary: Binary | None = None

    @property
    def code_hash(self) -> str:
        """Hash shared by libraries with identical code."""
        return self.binary.code_hash if self.binary is not None else self.source_hash


def default_jobs(job_bytes: int) -> int:
    """Number of parallel compilers that need `job_bytes` each: one per core, limited by the free memory."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, available_bytes() // job_bytes))


def available_bytes() -> int:
    """Memory available without swapping."""
    text = Path("/proc/meminfo").read_text(encoding="utf-8")
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def unit_size(kernels: int, most: int, jobs: int) -> int:
    """Number of kernels per unit: `most`, or fewer as long as no further wave of compilers is needed."""
    rounds = math.ceil(kernels / (most * jobs))
    return math.ceil(kernels / (max(rounds, 1) * jobs))


def units(
    sources: Mapping[str, tuple[Kernel, str]], most: int, cost: Callable[[Kernel], float] = lambda _: 1.0
) -> list[list[str]]:
    """Group sources, each given with one of its kernels, into units of at most `most` kernels of the same operation.

    Similar kernels are placed in the same unit, and units have about equal cost.
    """
    operations: dict[str, list[str]] = {}
    for key, (kernel, _) in sources.items():
        operations.setdefault(operation_of_kernel(kernel).name, []).append(key)
    groups: list[list[str]] = []
    for keys in operations.values():
        if most > 1:
            keys.sort(key=lambda key: similarity(sources[key][1]))
        groups += _cut(keys, [cost(sources[key][0]) for key in keys], most)
    return groups


def _cut(keys: Sequence[str], costs: Sequence[float], most: int) -> Iterator[list[str]]:
    """Split the keys into the minimum number of contiguous parts of at most `most` keys, with about equal costs."""
    each, spent = sum(costs) / math.ceil(len(keys) / most), 0.0
    part: list[str] = []
    number = 0
    for key, cost in zip(keys, costs, strict=True):
        if part and (len(part) == most or int(spent / each + _ROUNDING) > number):
            yield part
            part = []
            number = int(spent / each + _ROUNDING)
        part.append(key)
        spent += cost
    yield part


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """A compilation request: sources with one of their kernels by hash, the working folder, and whether to stop."""

    sources: dict[str, tuple[Kernel, str]]
    workshop: Path
    should_stop: Callable[[], bool]


class KernelBuilder:
    """Builds the kernels of a device, each distinct source once."""

    def __init__(self, device: Device, timeout_s: float = DEFAULT_COMPILE_TIMEOUT_S) -> None:
        self._device = device
        self._timeout_s = timeout_s
        self._salt = hashlib.sha256(device.cache_salt()).digest()
        self._cache = KernelCache()

    def source_hash(self, kernel: Kernel) -> str:
        """Name of the kernel's library in the cache."""
        return self._hash(self._device.emit(kernel))

    def missing(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """One kernel of each library that is not cached yet; unsupported kernels are left out."""
        keys: dict[str, Kernel] = {}
        for kernel in kernels:
            with suppress(UnsupportedKernelError):
                keys.setdefault(self.source_hash(kernel), kernel)
        return [kernel for key, kernel in keys.items() if not self._cache.path(key).exists()]

    def library(self, kernel: Kernel) -> Path:
        """Path of the kernel's library in the cache, whether or not it exists yet."""
        return self._cache.path(self.source_hash(kernel))

    def build(
        self,
        kernels: Sequence[Kernel],
        jobs: int,
        advance: Callable[[int, str], None],
        should_stop: Callable[[], bool] = lambda: False,
    ) -> dict[Kernel, Built]:
        """Build what is not cached, with `jobs` compilers in parallel; after `should_stop`, the rest is omitted."""
        built: dict[Kernel, Built] = {}
        hashes: dict[Kernel, str] = {}
        sources: dict[str, tuple[Kernel, str]] = {}
        for kernel in kernels:
            try:
                source = self._device.emit(kernel)
            except UnsupportedKernelError as error:
                built[kernel] = Built(Status.UNSUPPORTED, "", "", str(error))
                advance(1, "")
                continue
            hashes[kernel] = self._hash(source)
            sources[hashes[kernel]] = kernel, source
        try:
            with self._cache.workshop() as workshop:
                made = self._build_all(BuildOrder(sources, workshop, should_stop), jobs, advance)
        except OSError as error:
            text = f"cannot build kernels in {self._cache.folder}: {error.strerror}"
            raise CacheError(text, "free disk space, or set CKH_CACHE_DIR") from error
        return built | {kernel: made[key] for kernel, key in hashes.items() if key in made}

    def _build_all(self, order: BuildOrder, jobs: int, advance: Callable[[int, str], None]) -> dict[str, Built]:
        made = self._found(order)
        if made:
            advance(len(made), "")
        left = {key: source for key, source in order.sources.items() if key not in made}
        if left:
            self._require_toolchain(order)
        together = self._units(left, jobs)
        for of_unit in self._build_units(together, order, jobs, advance):
            made |= of_unit
        for unit in together:
            again = [key for key in unit if key in made and made[key].status is Status.COMPILE_INTERRUPTED]
            for key, compiled in self._build_unit(again, order, is_last=True):
                made[key] = compiled
            advance(len(again), "")
        if not _FAILED.isdisjoint(made[key].status for key in left if key in made):
            self._require_toolchain(order)  # it may have broken in the meantime
        return made

    def _require_toolchain(self, order: BuildOrder) -> None:
        """Check that any kernel can be built, before compiling and after a compiler failed."""
        if not order.should_stop():
            require_toolchain(self._device, order.workshop, order.should_stop)

    def _units(self, sources: Mapping[str, tuple[Kernel, str]], jobs: int) -> list[list[str]]:
        """Group the sources into units that stay well below the compiler's timeout."""
        most = self._device.unit_kernels
        if most == 1 or not sources:
            return units(sources, 1)
        names = {operation_of_kernel(kernel).name for kernel, _ in sources.values()}
        costs = {name: self._costs(name) for name in names}

        def cost(kernel: Kernel) -> float:
            return costs[operation_of_kernel(kernel).name].of(kernel)

        mean_s = sum(cost(kernel) for kernel, _ in sources.values()) / len(sources)
        most = max(1, min(most, int(_UNIT_SHARE * self._timeout_s / mean_s)))
        return units(sources, unit_size(len(sources), most, jobs), cost)

    def _costs(self, op: str) -> CompileCosts:
        return CompileCosts.of_device(self._device, operation(op))

    def _build_units(
        self, together: Sequence[Sequence[str]], order: BuildOrder, jobs: int, advance: Callable[[int, str], None]
    ) -> Iterable[dict[str, Built]]:
        """Build units with `jobs` compilers in parallel; yields the results of each."""
        from joblib import Parallel, delayed

        lock = threading.Lock()

        def build(unit: Sequence[str]) -> dict[str, Built]:
            built = {}
            with lock:
                first = full_name(order.sources[unit[0]][0])
                advance(0, first if len(unit) == 1 else f"{first} and {len(unit) - 1} more")
            for key, compiled in self._build_unit(unit, order):
                if compiled.status is not Status.COMPILE_INTERRUPTED:
                    with lock:
                        advance(1, "")
                built[key] = compiled
            return built

        outcome: list[dict[str, Built]] = Parallel(n_jobs=jobs, backend="threading")(
            delayed(build)(unit) for unit in together
        )
        return outcome

    def _found(self, order: BuildOrder) -> dict[str, Built]:
        """Cached results of the sources."""
        cached = {}
        for key in order.sources:
            if order.should_stop():
                break
            if library := self._cache.find(key):
                cached[key] = _ok(key, library)
        return cached

    def _hash(self, source: str) -> str:
        return hashlib.sha256(self._salt + source.encode()).hexdigest()[:32]

    def _build_unit(
        self, unit: Sequence[str], order: BuildOrder, *, is_last: bool = False
    ) -> Iterator[tuple[str, Built]]:
        """Build a unit, falling back to single sources if that fails; when stopped, the rest is omitted.

        An interrupted compiler marks all sources of its unit as interrupted; if `is_last`, each is built alone instead.
        """
        together = self._compile_together(unit, order) if len(unit) > 1 else {}
        for key in unit:
            compiled = together.get(key)
            if compiled is None or (is_last and compiled.status is Status.COMPILE_INTERRUPTED):
                compiled = self._build(key, order)
            if compiled is not None:
                yield key, compiled

    def _compile_together(self, unit: Sequence[str], order: BuildOrder) -> dict[str, Built]:
        """Compile a unit; returns its sources' libraries or interruption, or nothing if the compiler fails."""
        if order.should_stop():
            return {}
        first = order.sources[unit[0]][0]
        text = self._device.emit_unit(first, [order.sources[key][1] for key in unit])
        with tempfile.TemporaryDirectory(dir=order.workshop, ignore_cleanup_errors=True) as folder:
            library = Path(folder) / "unit.so"
            run = self._run(first, text, library, order)
            if run is None:
                return {}
            if run.status is Status.COMPILE_INTERRUPTED:
                return {key: Built(run.status, "", key, run.message) for key in unit}
            why = run.message if run.status is not Status.OK else fault(library)
            content = b"" if why else library.read_bytes()
            if not why and not chosen(content, 0):
                why = "none can be chosen"
            if why:
                note(f"compiling {len(unit)} kernels one by one; together they failed: {why}")
                return {}
            name, built = self._cache.put_unit(library), {}
            kernels = [order.sources[key][0] for key in unit]
            shares = self._costs(operation_of_kernel(first).name).weights(kernels)
            for number, key in enumerate(unit):
                own = replace(run, message=remarks_of(number, run.message), cpu_s=run.cpu_s * shares[number])
                built[key] = self._keep(key, order, (library, content), own, Part(name, number, len(unit)))
            return built

    def _build(self, key: str, order: BuildOrder) -> Built | None:
        """Build a source; None when stopped."""
        if order.should_stop():
            return None
        kernel, text = order.sources[key]
        with tempfile.TemporaryDirectory(dir=order.workshop, ignore_cleanup_errors=True) as folder:
            library = Path(folder) / f"{key}.so"
            run = self._run(kernel, text, library, order)
            if run is None:
                return None
            if run.status is not Status.OK:
                return Built(run.status, "", key, run.message)
            if why := fault(library):
                return Built(Status.COMPILE_ERROR, "", key, f"output is not a library of a kernel: {why}")
            return self._keep(key, order, (library, library.read_bytes()), run)

    def _run(self, kernel: Kernel, text: str, library: Path, order: BuildOrder) -> CompilerRun | None:
        """Compile the source of a kernel, or of a unit, given its first kernel."""
        source = library.with_suffix(".cpp")
        source.write_text(text, encoding="utf-8")
        command = self._device.compile_command(kernel, source, library)
        return run_compiler(command, source, self._timeout_s, order.should_stop)

    def _keep(
        self, key: str, order: BuildOrder, output: tuple[Path, bytes], run: CompilerRun, part: Part | None = None
    ) -> Built:
        """Store a library, or the reference to its part of a unit, in the cache together with its metadata.

        `output` is the library, or a unit's place before it was moved to the cache, and its content.
        """
        (library, content), (kernel, source) = output, order.sources[key]
        binary = self._device.inspect(kernel, source, run.message, content)
        arch, op = self._device.arch.name, operation_of_kernel(kernel)
        if binary is not None and binary.resources is not None:
            add_compiled(arch, op.name, op.kernels.name(kernel), binary.resources)
        compilation = Compilation(arch, op.name, kind_of(kernel), run.cpu_s)
        return _ok(key, self._cache.put(key, library, binary, compilation, part))


def _ok(key: str, library: CachedLibrary) -> Built:
    return Built(Status.OK, str(library.path), key, binary=library.binary)
