"""Compile kernels and load each in a separate process: the checks that are possible without a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckh.bench.compilation.binary import Binary
from ckh.bench.supervision.protocol import Job, Op
from ckh.schema import Status
from ckh.text.progress import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.bench.supervision.driver import Driver
    from ckh.bench.supervision.protocol import Reply
    from ckh.ops.base import Kernel
    from ckh.schema import Resources

_LOAD_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class BuildReport:
    """Result of building a kernel."""

    status: Status
    message: str
    """Reason why the status is not ok."""
    library: str
    """Library file; empty if there is none."""
    resources: Resources | None
    """Resource usage reported by the compiler."""
    calling: int | None
    """GPU functions that call others; null: unknown."""


def build_and_load(driver: Driver, kernels: Sequence[Kernel]) -> dict[Kernel, BuildReport]:
    """Compile kernels and load each library in a worker; kernels not reached when stopped are omitted."""
    built = driver.build(kernels, "compiling kernels")
    loaded = _load_all(driver, [item.library for item in built.values() if item.status is Status.OK])
    result: dict[Kernel, BuildReport] = {}
    for kernel, item in built.items():
        if item.status is Status.OK and item.library not in loaded:
            continue  # stopped before
        last = loaded.get(item.library, item)
        binary = item.binary or Binary("", None)
        result[kernel] = BuildReport(last.status, last.message, item.library, binary.resources, binary.calling)
    return result


def _load_all(driver: Driver, libraries: Sequence[str]) -> dict[str, Reply]:
    """Load each library; a library that crashes the worker does not affect the others."""
    config = replace(driver.configs[0], load_only=True)
    result: dict[str, Reply] = {}
    with (
        driver.worker(config, timeout_s=_LOAD_TIMEOUT_S, should_stop=lambda: False) as worker,
        progress("loading kernels", len(libraries)) as advance,
    ):
        for library in dict.fromkeys(libraries):
            if driver.should_stop():
                break
            ((_, reply),) = worker.run(None, [Job(Op.LOAD, 0, library=library)])
            where = "when it was loaded: " if reply.status in (Status.CRASH, Status.TIMEOUT) else ""
            result[library] = replace(reply, message="" if reply.status is Status.OK else where + reply.message)
            advance(1, "")
    return result
