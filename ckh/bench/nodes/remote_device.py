"""Client side of a cluster node's device: runs jobs as a local `Supervisor` does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.nodes.remote import Missing, run_jobs, store
from ckh.bench.supervision.protocol import device_name
from ckh.cluster.calls import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.bench.nodes.remote import DeviceRequest, NodeFacts
    from ckh.bench.supervision.protocol import Job, Reply
    from ckh.cluster.calls import Cluster, ClusterNode

SHIPPED = 32  # kernels per call; a CK Tile kernel has some megabytes


@dataclass(frozen=True, slots=True)
class RemoteDevice:
    """A device of a node."""

    node: ClusterNode
    facts: NodeFacts
    number: int

    @property
    def name(self) -> str:
        """Name of the machine and the device."""
        return device_name(self.facts.machine, self.facts.configs[self.number])


@dataclass(slots=True)
class RemoteRunner:
    """Runs jobs on a device of a node (`JobRunner`)."""

    cluster: Cluster
    request: DeviceRequest
    device: RemoteDevice
    timeout_s: float
    should_stop: Callable[[], bool]
    node: str = field(init=False)
    phase_s: dict[str, float] = field(default_factory=dict)
    restarts: int = 0

    def __post_init__(self) -> None:
        """Set the name."""
        self.node = self.device.name

    def run(self, setup: Job | None, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reply]]:
        """Run jobs on the problem of `setup`; all replies arrive together, or none if stopped."""
        keyed = [replace(job, library=Path(job.library).stem) if job.library else job for job in jobs]
        arguments = (self.request, self.device.number, self.timeout_s, setup, keyed)
        call = Call(run_jobs, arguments, on=self.device.node.address)
        while True:
            result = self.cluster.result(call, self.should_stop)
            if result is None:
                return
            if not isinstance(result, Missing):
                break
            self._ship(result.keys)
        for phase, seconds in result.phase_s.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        self.restarts += result.restarts
        yield from zip(jobs, result.replies, strict=False)

    def _ship(self, keys: Sequence[str]) -> None:
        """Send kernels to the node's cache, in batches."""
        kernels = KernelCache()
        for start in range(0, len(keys), SHIPPED):
            files = kernels.files(keys[start : start + SHIPPED])
            self.cluster.result(Call(store, (files,), on=self.device.node.address), self.should_stop)
