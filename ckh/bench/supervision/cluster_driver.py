"""A driver that compiles kernels and measures problems on the nodes of a cluster.

All candidates of a problem are measured by one device, in one call: when its node dies, the whole problem is given to
another device. Rows and the journal are written by the client, so that a row that arrives twice is stored once.

Also builds kernels on the nodes, into the cache of this machine.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.devices.device_choice import require_usable
from ckh.bench.supervision.driver import Driver, T
from ckh.bench.supervision.protocol import device_name
from ckh.bench.supervision.remote import (
    Missing,
    build_here,
    cached,
    describe,
    end_devices,
    run_jobs,
    store,
    whole_files,
)
from ckh.cluster.calls import Call, NodeLostError
from ckh.errors import CkhError, DeviceError
from ckh.schema import Status
from ckh.text.log import note, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from ckh.bench.compilation.compile import BuildOrder, Built
    from ckh.bench.devices.device import Device, DeviceIdentity
    from ckh.bench.supervision.limits import BenchLimits
    from ckh.bench.supervision.protocol import Job, Reply, WorkerConfig
    from ckh.bench.supervision.reference_watch import Alike
    from ckh.bench.supervision.remote import DeviceRequest, NodeFacts
    from ckh.bench.supervision.runner import JobRunner
    from ckh.cluster.calls import Cluster, ClusterNode


_LOOK_S = 0.1  # between checks for finished threads and new nodes
_ALONE_S = 60.0  # without any usable node
COMPILERS = "ckh-compilers"  # node resource taken by a compiler
SHIPPED = 32  # kernels per call; a CK Tile kernel has some megabytes


class ClusterDriver(Driver):
    """A driver on a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        request: DeviceRequest,
        device: Device,
        limits: BenchLimits,
        should_stop: Callable[[], bool],
        *,
        measures: bool = True,
    ) -> None:
        self._cluster, self._request, self._measures = cluster, request, measures
        self._alike: Alike | None = None
        self._left_out: set[str] = set()  # devices that differ from the others
        self._facts: dict[str, NodeFacts] = {}
        self._toolchain = hashlib.sha256(device.cache_salt()).hexdigest()
        self._compiler = device.identity().compiler
        super().__init__(device, limits, should_stop, ())
        remote_devices = self.devices()
        if not remote_devices:
            faults = sorted({facts.fault for facts in self._facts.values()})
            raise DeviceError(f"no usable worker: {'; '.join(faults) or 'all were lost'}", code="no-nodes")
        self._first = remote_devices[0]  # the default device
        self.configs = tuple(remote_device.facts.configs[remote_device.number] for remote_device in remote_devices)
        self.jobs = sum(facts.compilers for facts in self._facts.values())

    is_spread = True

    @property
    def names(self) -> frozenset[str]:
        """Names of the measuring devices."""
        return frozenset(device.name for device in self.devices()) - self._left_out

    @property
    def identity(self) -> DeviceIdentity:
        """Identity of the devices, which are all of one kind."""
        assert self._first.facts.identity is not None
        return self._first.facts.identity

    @cached_property
    def _builder(self) -> KernelBuilder:
        timeout_s = self.limits.compile_timeout_s
        return ClusterBuilder(self._cluster, self._request, self.device, timeout_s, self._see_nodes)

    def devices(self) -> tuple[RemoteDevice, ...]:
        """Devices of all current nodes, each device of a machine once."""
        self._see_nodes()
        nodes = {node.address: node for node in self._cluster.nodes()}
        devices: dict[tuple[str, int], RemoteDevice] = {}
        for address, node in nodes.items():
            facts = self._facts.get(address)
            if facts is None or facts.fault:
                continue
            free = [number for number in range(len(facts.configs)) if (facts.machine, number) not in devices]
            for number in free[: node.slots]:
                devices[facts.machine, number] = RemoteDevice(node, facts, number)
        return tuple(devices.values())

    def _see_nodes(self) -> None:
        """Describe new nodes, and register their compilers and devices with the scheduler."""
        new = [node.address for node in self._cluster.nodes() if node.address not in self._facts]
        if new:
            described = self._cluster.everywhere(describe, self._request, on=new, measures=self._measures)
            self._facts |= described
            self._require_same()
            for address, facts in described.items():
                if facts.shared:
                    warn(f"{address} ({facts.machine}): {facts.shared}", "shared-gpu")
                if facts.identity is not None:
                    devices = {f"ckh {facts.identity.name}": float(len(facts.configs))}
                    self._cluster.advertise(address, {COMPILERS: float(facts.compilers), **devices})

    def _require_same(self) -> None:
        """Refuse nodes that compile differently from this machine, or whose devices are of several kinds."""
        usable = [(address, facts) for address, facts in self._facts.items() if facts.identity is not None]
        for address, facts in usable:
            first, identity = usable[0][0], usable[0][1].identity
            assert facts.identity is not None
            assert identity is not None
            if facts.toolchain != self._toolchain:
                raise DeviceError(
                    f"{address} ({facts.machine}) compiles with {facts.identity.compiler} {facts.toolchain[:12]}, this "
                    f"machine with {self._compiler} {self._toolchain[:12]}: compiler, headers or flags differ",
                    "install the same compiler, headers and ckh everywhere",
                    code="nodes-differ",
                )
            if self._measures and (what := identity.difference(facts.identity)):
                raise DeviceError(
                    f"the nodes have different devices, {first} ({identity.name}) and {address} "
                    f"({facts.identity.name}): {what}",
                    "measure each kind in a separate run",
                    code="nodes-differ",
                )

    @contextmanager
    def worker(
        self,
        config: WorkerConfig | None = None,
        *,
        timeout_s: float | None = None,
        should_stop: Callable[[], bool] | None = None,
        device: RemoteDevice | None = None,
    ) -> Iterator[JobRunner]:
        """A device of a node, by default always the same; without a device, kernels are loaded on this machine."""
        if config is not None and config.load_only:
            with super().worker(config, timeout_s=timeout_s, should_stop=should_stop) as own:
                yield own
            return
        chosen, stop = device or self._first, should_stop or self.should_stop
        limit_s = timeout_s or self.limits.timeout_s
        runner = RemoteRunner(self._cluster, self._request, chosen, limit_s, stop)
        try:
            yield runner
        finally:
            with self._lock:
                self._count(runner)

    def serve(self, choose: Callable[[str], T | None], work: Callable[[JobRunner, T], None]) -> None:
        """As `Driver.serve`, on all current devices and those that join while it runs."""
        serving = Serving(choose, work, self.should_stop)
        running: dict[str, threading.Thread] = {}
        alone_since = time.monotonic()
        while running or serving.is_open:
            here = {device.name: device for device in self.devices() if device.name not in self._left_out}
            serving.see(set(here))
            for name, device in here.items():
                if name not in running and serving.is_wanted(name):
                    running[name] = threading.Thread(target=self._serve_with, args=(device, serving), daemon=True)
                    running[name].start()
            if running:
                alone_since = time.monotonic()
            elif time.monotonic() > alone_since + _ALONE_S:
                raise DeviceError("no worker of the cluster is left", "continue with --resume", code="no-nodes")
            time.sleep(_LOOK_S)
            running = {name: thread for name, thread in running.items() if thread.is_alive()}
        if serving.failures:
            raise serving.failures[0]

    def _serve_with(self, device: RemoteDevice, serving: Serving[T]) -> None:
        """Execute tasks with a device until there are none left, or its worker is lost."""
        try:
            with self.worker(device=device, should_stop=lambda: serving.is_over) as runner:
                # A device may have joined during the run: it must be as fast as those compared.
                if self._alike is None or self._alike.admits(runner):
                    serving.do_all(runner)
                else:
                    self._left_out.add(runner.node)
        except NodeLostError as error:
            note(f"{device.name}: {error.message}; its problem is given to another device")
        except CkhError as error:
            serving.failures.append(error)

    def _time(self, alike: Alike) -> None:
        self._alike = alike
        for device in self.devices():
            with suppress(NodeLostError), self.worker(device=device) as runner:  # it is compared again when it returns
                alike.add(runner)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the processes that nodes keep for this run."""
        with suppress(DeviceError):  # the cluster is gone, and its processes with it
            self._cluster.everywhere(end_devices)


def driver_for(
    cluster: Cluster | None,
    request: DeviceRequest,
    device: Device,
    limits: BenchLimits,
    should_stop: Callable[[], bool],
    *,
    measures: bool = True,
) -> Driver:
    """Create the driver that builds and runs kernels: on this machine, or on a cluster's nodes."""
    if cluster is not None:
        return ClusterDriver(cluster, request, device, limits, should_stop, measures=measures)
    if measures:
        require_usable(device)
    return Driver(device, limits, should_stop)


class ClusterBuilder(KernelBuilder):
    """Builds kernels on the nodes."""

    def __init__(
        self, cluster: Cluster, request: DeviceRequest, device: Device, timeout_s: float, see_nodes: Callable[[], None]
    ) -> None:
        super().__init__(device, timeout_s)
        self._cluster, self._request, self._see_nodes = cluster, request, see_nodes

    def _build_units(
        self, together: Sequence[Sequence[str]], order: BuildOrder, jobs: int, advance: Callable[[int, str], None]
    ) -> Iterator[dict[str, Built]]:
        """Build units; yields results as they arrive.

        Kernels cached by a node, or being built for another client, are reused.
        """
        del jobs  # nodes determine their number of compilers

        def should_stop() -> bool:
            self._see_nodes()  # a restarted node gets no calls before it has registered its resources
            return order.should_stop()

        copied = self._from_nodes([key for unit in together for key in unit], order)
        advance(len(copied), "")
        yield copied
        units = [left for unit in together if (left := [key for key in unit if key not in copied])]
        calls = (self._call(unit, order) for unit in units)
        for _, (made, files) in self._cluster.results(calls, should_stop):
            self._cache.adopt(files)
            advance(sum(build.status is not Status.COMPILE_INTERRUPTED for build in made.values()), "")
            yield {
                key: replace(build, library=str(self._cache.path(key))) if build.library else build
                for key, build in made.items()
            }

    def _require_toolchain(self, order: BuildOrder) -> None:
        """Do nothing: nodes check their own toolchains."""

    def _from_nodes(self, keys: Sequence[str], order: BuildOrder) -> dict[str, Built]:
        """Copy libraries from the caches of nodes into this one."""
        left = set(keys)
        calls = []
        for address, known in self._cluster.everywhere(cached, list(keys)).items():
            of_node = [key for key in known if key in left]
            left -= set(of_node)
            starts = range(0, len(of_node), SHIPPED)
            calls += [Call(whole_files, (of_node[start : start + SHIPPED],), on=address) for start in starts]
        with suppress(NodeLostError):  # its libraries are built again
            for _, files in self._cluster.results(calls, order.should_stop):
                self._cache.adopt(files)
        return self._found(replace(order, sources={key: order.sources[key] for key in keys if key not in left}))

    def _call(self, unit: Sequence[str], order: BuildOrder) -> Call:
        """The call that builds a unit; another client's call of the same unit has the same key, and runs once."""
        key = hashlib.sha256(repr((self._request, self._timeout_s, *unit)).encode()).hexdigest()
        arguments = (self._request, [order.sources[name][0] for name in unit], self._timeout_s)
        return Call(build_here, arguments, key=f"ckh-build-{key}", needs={COMPILERS: 1.0})


class Serving(Generic[T]):
    """State shared by the devices of a cluster in a run: tasks of lost nodes, and failures."""

    def __init__(
        self, choose: Callable[[str], T | None], work: Callable[[JobRunner, T], None], should_stop: Callable[[], bool]
    ) -> None:
        self._choose = choose
        self._lost: deque[T] = deque()
        self._without: set[str] = set()  # idle devices
        self._here: set[str] = set()
        self._lock = threading.Lock()
        self._work = work
        self._should_stop = should_stop
        self.failures: list[CkhError] = []

    @property
    def is_over(self) -> bool:
        """True once the run is to end, complete or not."""
        return bool(self.failures) or self._should_stop()

    @property
    def is_open(self) -> bool:
        """True while there may be a task for a device."""
        return (bool(self._lost) or not self._without) and not self.is_over

    def is_wanted(self, name: str) -> bool:
        """True if there may be a task for this device."""
        return (bool(self._lost) or name not in self._without) and not self.is_over

    def see(self, names: set[str]) -> None:
        """Record the available devices: unfinished tasks of missing devices go to the others."""
        with self._lock:
            if not self._here <= names:
                self._without.clear()
            self._here = names

    def do_all(self, runner: JobRunner) -> None:
        """Execute tasks with a device until there are none for it; if its node is lost, others continue."""
        task: T | None = None
        try:
            while not self.is_over and (task := self._next(runner.node)) is not None:
                self._work(runner, task)
        except NodeLostError:
            if task is not None:
                self._lost.append(task)  # for another device
            raise

    def _next(self, node: str) -> T | None:
        with self._lock:
            if self._lost:
                return self._lost.popleft()
            task = self._choose(node)
            if task is None:
                self._without.add(node)
            return task


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
            ran = self.cluster.result(call, self.should_stop)
            if ran is None:
                return
            if not isinstance(ran, Missing):
                break
            self._ship(ran.keys)
        for phase, seconds in ran.phase_s.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        self.restarts += ran.restarts
        yield from zip(jobs, ran.replies, strict=False)

    def _ship(self, keys: Sequence[str]) -> None:
        """Send kernels to the node's cache, in batches."""
        kernels = KernelCache()
        for start in range(0, len(keys), SHIPPED):
            files = kernels.files(keys[start : start + SHIPPED])
            self.cluster.result(Call(store, (files,), on=self.device.node.address), self.should_stop)
