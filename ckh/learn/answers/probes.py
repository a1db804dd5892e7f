"""Stored probes: measured times of a model's first choices, used by later answers.

Each problem and architecture has a file of JSON Lines in the user's data folder. A line is a probe: device, date,
compiler, and the time of each kernel. Lines are only appended.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ckh.archs import HOST, load_arch
from ckh.errors import DataError, OutputError
from ckh.files.jsonfields import parse_json
from ckh.files.paths import PROBES, user_data_dir
from ckh.hardware.gpus import visible_gpus
from ckh.hardware.machine import processor_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from ckh.data.dataset import Dataset

_NAME_LENGTH = 32
_DIGEST = "sha256"  # of the other fields of a line


@dataclass(frozen=True, slots=True)
class Timed:
    """A measured kernel: complete name, and time or failure."""

    kernel: str
    status: str
    message: str
    latency_ms: float | None
    spread: float | None


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe: kernels of a problem timed against each other."""

    problem: str
    """Canonical text."""
    arch: str
    """Architecture."""
    device: str
    """Device, as returned by `this_device`."""
    when: str
    """Date and time, ISO 8601, UTC."""
    ckh: str
    """Version."""
    compiler: str
    """Compiler of the kernels."""
    kernels: tuple[Timed, ...]
    """In the model's order."""

    def fastest_first(self) -> list[Timed]:
        """Kernels with a time, fastest first."""
        return sorted(
            (kernel for kernel in self.kernels if kernel.latency_ms), key=lambda kernel: kernel.latency_ms or 0.0
        )


def in_front(
    probe: Probe, kernels: Sequence[int], numbers_of: Callable[[Collection[str]], Mapping[str, int]]
) -> tuple[Probe, list[int]]:
    """Order of kernels, given by number, with measured ones first, fastest first, and failed ones last.

    Kernels that are no longer candidates are left out of the probe.
    """
    number_of = numbers_of({timed.kernel for timed in probe.kernels})
    place_of = {number: place for place, number in enumerate(kernels)}
    places = {name: place_of[number] for name, number in number_of.items() if number in place_of}
    known = replace(probe, kernels=tuple(timed for timed in probe.kernels if timed.kernel in places))
    first = [places[timed.kernel] for timed in known.fastest_first()]
    last = [places[timed.kernel] for timed in known.kernels if timed.latency_ms is None]
    rest = sorted(set(range(len(kernels))).difference(first, last))
    return known, [*first, *rest, *last]


def this_device(arch: str) -> str | None:
    """Identifying text of this machine's device of an architecture; None without such a device."""
    if arch == HOST:
        hardware = load_arch(HOST).hardware
        return _host(processor_name(), hardware.max_clock_mhz, hardware.l2_cache_kb)
    for gpu in visible_gpus():
        if gpu.arch == arch:
            return _gpu(gpu.arch, gpu.num_cus, gpu.max_clock_mhz)
    return None


def _host(name: str, max_clock_mhz: int, l2_cache_kb: int) -> str:
    return f"{name}, {max_clock_mhz} MHz, L2 {l2_cache_kb} KB"


def _gpu(arch: str, num_cus: int, max_clock_mhz: int) -> str:
    return f"{arch}, {num_cus} CUs, {max_clock_mhz} MHz"


def probe_path(problem: str, arch: str) -> Path:
    """Path of a problem's file."""
    name = hashlib.sha256(f"{arch} {problem}".encode()).hexdigest()[:_NAME_LENGTH]
    return user_data_dir() / PROBES / f"{name}.jsonl"


def recall(problem: str, arch: str) -> Probe | None:
    """Return the last probe of a problem on this machine's device of the architecture."""
    path = probe_path(problem, arch)
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}", "remove it, or use --no-measured", code="unreadable") from error
    device = this_device(arch)
    for line in reversed(lines):
        probe = _parse(line)
        if probe is not None and (probe.problem, probe.arch, probe.device) == (problem, arch, device):
            return probe
    return None


def remember(probe: Probe) -> None:
    """Append a probe to its problem's file, flushed to disk."""
    path = probe_path(probe.problem, probe.arch)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.lseek(file, 0, os.SEEK_END)
            # A line truncated by a crash must not corrupt this one.
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            os.write(file, (b"\n" if torn else b"") + _line(probe) + b"\n")
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}", "set CKH_DATA_DIR", code="unwritable") from error


def remember_all(measured: Dataset) -> int:
    """Remember the times of a dataset of ckh bench as probes of its device, except where a later probe is known."""
    from datetime import datetime, timezone

    from ckh.version import __version__

    compiler, count = str(measured.metadata["runs"][-1]["compiler"]), 0
    of_problem: dict[int, list[Any]] = {}
    for number, row in zip(measured.problem_ids.tolist(), measured.frame.itertuples(), strict=True):
        of_problem.setdefault(number, []).append(row)
    for problem, number in zip(measured.problems(), sorted(of_problem), strict=True):
        rows = of_problem[number]
        kernels = tuple(filter(None, map(_timed, rows)))
        when = datetime.fromtimestamp(max(row.measured_at for row in rows), timezone.utc)
        text, row = problem.canonical(), rows[0]
        arch, clock = str(row.arch), row.hw_max_clock_mhz
        device = _host(row.device, clock, row.hw_l2_cache_kb) if arch == HOST else _gpu(arch, row.hw_num_cus, clock)
        probe = Probe(text, arch, device, when.isoformat(timespec="seconds"), __version__, compiler, kernels)
        if not probe.fastest_first():
            continue
        count += 1
        known = recall(text, arch)
        if known is None or known.when < probe.when:
            remember(probe)
    return count


def _timed(row: Any) -> Timed | None:
    """Time of a dataset's row, or its failure; None if the kernel did not run."""
    from ckh.schema import MEASURED, RUN_FAILED

    if row.status in MEASURED:
        return Timed(row.kernel, str(row.status), "", float(row.latency_ms), float(row.spread))
    return Timed(row.kernel, str(row.status), str(row.message), None, None) if row.status in RUN_FAILED else None


def _line(probe: Probe) -> bytes:
    values = asdict(probe)
    return json.dumps({**values, _DIGEST: _digest_of(values)}).encode()


def _digest_of(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _parse(line: bytes) -> Probe | None:
    try:
        values: dict[str, Any] = parse_json(line)
        # Lines of earlier versions have no digest.
        if (digest := values.pop(_DIGEST, None)) is not None and digest != _digest_of(values):
            return None
        kernels = tuple(Timed(**fields) for fields in values.pop("kernels"))
        probe = Probe(**values, kernels=kernels)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    times = [kernel.latency_ms for kernel in kernels if kernel.latency_ms is not None]
    return probe if all(isinstance(time, (int, float)) and time > 0 for time in times) else None
