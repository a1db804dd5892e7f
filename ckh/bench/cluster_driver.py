"""A driver whose kernels are compiled, and whose problems are measured, by the nodes of a cluster.

Of a problem all candidates are measured by one device, in one call: when its node dies, the problem is given to another
device, whole. Rows are made here, and the journal is written here, so that a row that comes twice is stored once.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Generic, TypeVar

from ckh.bench.compile import KernelBuilder
from ckh.bench.device import HOST_KIND
from ckh.bench.device_choice import require_usable
from ckh.bench.driver import Driver, measure
from ckh.bench.kernel_cache import KernelCache
from ckh.bench.node_states import NodeStates
from ckh.bench.remote import Missing, build_here, cached, describe, end_devices, run_jobs, store, whole_files
from ckh.cluster import Call, NodeLostError
from ckh.errors import CkhError, DeviceError
from ckh.log import note
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from ckh.bench.compile import BuildOrder, Built
    from ckh.bench.device import Device, DeviceIdentity
    from ckh.bench.driver import JobRunner
    from ckh.bench.limits import BenchLimits
    from ckh.bench.protocol import Job, Reply, WorkerConfig
    from ckh.bench.remote import DeviceRequest, NodeFacts
    from ckh.cluster import Cluster, ClusterNode

T = TypeVar("T")
_SHIPPED = 32  # kernels in one call; a CK Tile kernel has some megabytes
_LOOK_S = 0.1  # between looks for threads that ended, and nodes that came
_ALONE_S = 60.0  # without any node
COMPILERS = "ckh-compilers"  # the resource of nodes that a compiler takes
_ROUNDS = 3  # of the reference kernel on each device
DEVICE_RATIO = {HOST_KIND: 1.5}  # how many times slower than the fastest one a device may be; GPUs: below
_DEVICE_RATIO = 1.05


@dataclass(frozen=True, slots=True)
class RemoteDevice:
    """A device of a node."""

    node: ClusterNode
    facts: NodeFacts
    number: int

    @property
    def name(self) -> str:
        """Machine, and which of its devices."""
        config = self.facts.configs[self.number]
        return f"{self.facts.machine}/{config.kind}{config.cpu if config.kind == HOST_KIND else config.gpu}"


class RemoteRunner:
    """Runs jobs on a device of a node as a `Supervisor` does here.

    Attributes:
        node: the device's name, for rows.
        phase_s: seconds by phase.
        restarts: of the device's process.
    """

    def __init__(
        self,
        cluster: Cluster,
        request: DeviceRequest,
        device: RemoteDevice,
        states: NodeStates,
        timeout_s: float,
        stop: Callable[[], bool],
    ) -> None:
        self._cluster, self._request, self._device, self._states = cluster, request, device, states
        self._timeout_s, self._stop = timeout_s, stop
        self.node = device.name
        self.phase_s: dict[str, float] = {}
        self.restarts = 0

    def run(self, setup: Job | None, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reply]]:
        """Do jobs on the problem of `setup`; all replies come together, or none if it was stopped.

        Raises:
            NodeLostError: the node is gone; nothing was done.
            DeviceError: the device cannot be used.
        """
        keyed = [replace(job, library=Path(job.library).stem) if job.library else job for job in jobs]
        arguments = (self._request, self._device.number, self._timeout_s, setup, keyed)
        call = Call(run_jobs, arguments, on=self._device.node.address)
        problem = "" if setup is None else setup.problem
        while True:
            with self._states.working(self._device.node.address, self.node, problem, len(jobs)):
                found = self._cluster.result(call, self._stop)
            if found is None:
                return
            if not isinstance(found, Missing):
                break
            self._ship(found.keys)
        for phase, seconds in found.phase_s.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        self.restarts += found.restarts
        yield from zip(jobs, found.replies, strict=False)

    def _ship(self, keys: Sequence[str]) -> None:
        """Send kernels to the node's cache, some at a time."""
        kernels = KernelCache()
        for start in range(0, len(keys), _SHIPPED):
            files = kernels.files(keys[start : start + _SHIPPED])
            self._cluster.result(Call(store, (files,), on=self._device.node.address), self._stop)


class _ClusterBuilder(KernelBuilder):
    """Builds kernels on the nodes, into the cache of this machine."""

    def __init__(self, cluster: Cluster, request: DeviceRequest, device: Device, timeout_s: float) -> None:
        super().__init__(device, timeout_s)
        self._cluster, self._request = cluster, request

    def _build_units(
        self, together: Sequence[Sequence[str]], order: BuildOrder, jobs: int, advance: Callable[[int, str], None]
    ) -> Iterator[dict[str, Built]]:
        """Build units; yields results as they come. What a node has, or another client builds, is not built again."""
        del jobs  # nodes say how many compilers they can run
        found = self._from_nodes([key for unit in together for key in unit], order)
        advance(len(found), "")
        yield found
        units = [left for unit in together if (left := [key for key in unit if key not in found])]
        done: set[str] = set()
        for _, (made, files) in self._cluster.results(self._calls(units, order), order.should_stop):
            self._cache.adopt(files)
            new = {key: one for key, one in made.items() if key in order.sources and key not in done}
            done |= new.keys()
            advance(sum(one.status is not Status.COMPILE_INTERRUPTED for one in new.values()), "")
            yield {
                key: replace(one, library=str(self._cache.path(key))) if one.library else one
                for key, one in new.items()
            }

    def _from_nodes(self, keys: Sequence[str], order: BuildOrder) -> dict[str, Built]:
        """What nodes have in their caches, taken into this one."""
        left = set(keys)
        calls = []
        for address, known in self._cluster.everywhere(cached, list(keys)).items():
            of_node = [key for key in known if key in left]
            left -= set(of_node)
            starts = range(0, len(of_node), _SHIPPED)
            calls += [Call(whole_files, (of_node[start : start + _SHIPPED],), on=address) for start in starts]
        for _, files in self._cluster.results(calls, order.should_stop):
            self._cache.adopt(files)
        return self._found(replace(order, sources={key: order.sources[key] for key in keys if key not in left}))

    def _calls(self, units: Sequence[Sequence[str]], order: BuildOrder) -> Iterator[Call]:
        """Calls that build units, each claimed when its turn comes, or wait for those of other clients."""
        for unit in units:
            key = f"ckh-build-{secrets.token_hex(16)}"
            others = self._cluster.claim(unit, key)
            own = [order.sources[one][0] for one in unit if one not in others]
            if own:
                yield Call(build_here, (self._request, own, self._timeout_s), key=key, needs={COMPILERS: 1.0})
            for other in dict.fromkeys(others.values()):
                yield Call(build_here, (), key=other, joins=True)


class _Serving(Generic[T]):
    """The shared state of a run's devices: tasks whose node was lost, whether there are others, and what failed."""

    def __init__(
        self, choose: Callable[[str], T | None], work: Callable[[JobRunner, T], None], should_stop: Callable[[], bool]
    ) -> None:
        self._choose = choose
        self._lost: deque[T] = deque()
        self._is_done = False  # whether there is nothing more to choose
        self._lock = threading.Lock()
        self._work = work
        self._should_stop = should_stop
        self.failures: list[CkhError] = []

    @property
    def is_over(self) -> bool:
        """True once the run is to end, done or not."""
        return bool(self.failures) or self._should_stop()

    @property
    def is_open(self) -> bool:
        """True while there is a task for another device."""
        return (bool(self._lost) or not self._is_done) and not self.is_over

    def do_all(self, runner: JobRunner) -> None:
        """Do tasks with a device until there are none; one whose node is lost is left to the others.

        Raises:
            CkhError: a task raised it.
        """
        while self.is_open and (task := self._next(runner.node)) is not None:
            with self._kept(task):
                self._work(runner, task)

    @contextmanager
    def _kept(self, task: T) -> Iterator[None]:
        """Keep a task for another device if this one's node is lost."""
        try:
            yield
        except NodeLostError:
            self._lost.append(task)
            raise

    def _next(self, node: str) -> T | None:
        with self._lock:
            if self._lost:
                return self._lost.popleft()
            task = self._choose(node)
            self._is_done = self._is_done or task is None
            return task


class ClusterDriver(Driver):
    """A driver on a cluster.

    Args:
        cluster: the nodes.
        request: the device that each of them opens.
        device: the same here, for the sources of kernels.
        limits: as `Driver`; `jobs` is not used.
        should_stop: as `Driver`.
        measures: whether devices are used, and not compilers alone.

    Attributes:
        times: of the reference kernel, in ns, by device.

    Raises:
        DeviceError: no node can be used, or nodes differ in compiler, headers or devices.
    """

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
        self._states, self._open = NodeStates(cluster), ExitStack()
        self._reference: tuple[Job, Built] | None = None
        self.times: dict[str, float] = {}
        self._left_out: set[str] = set()  # devices that differ from the others
        self._facts: dict[str, NodeFacts] = {}
        self._toolchain = hashlib.sha256(device.cache_salt()).hexdigest()
        self._compiler = device.identity().compiler
        super().__init__(device, limits, should_stop, ())
        if not self.devices():
            faults = sorted({facts.fault for facts in self._facts.values()})
            raise DeviceError(f"no node of the cluster can be used: {'; '.join(faults)}")
        self.configs = tuple(one.facts.configs[one.number] for one in self.devices())
        self.jobs = sum(facts.compilers for facts in self._facts.values())
        self._first: RemoteDevice | None = None  # that works where no device is named

    is_spread = True

    @property
    def identity(self) -> DeviceIdentity:
        """That of the devices, which are all of one kind."""
        found = self.devices()[0].facts.identity
        assert found is not None
        return found

    def _make_builder(self) -> KernelBuilder:
        return _ClusterBuilder(self._cluster, self._request, self.device, self.limits.compile_timeout_s)

    def devices(self) -> tuple[RemoteDevice, ...]:
        """The devices of all nodes that are there now, each of a machine's once.

        Raises:
            DeviceError: two nodes differ.
        """
        nodes = {node.address: node for node in self._cluster.nodes()}
        new = [address for address in nodes if address not in self._facts]
        if new:
            self._facts |= self._cluster.everywhere(describe, self._request, on=new, measures=self._measures)
            self._require_same()
            self._advertise(new)
        found: dict[tuple[str, int], RemoteDevice] = {}
        for address, node in nodes.items():
            facts = self._facts.get(address)
            if facts is None or facts.fault:
                continue
            free = [number for number in range(len(facts.configs)) if (facts.machine, number) not in found]
            for number in free[: node.slots]:
                found[facts.machine, number] = RemoteDevice(node, facts, number)
        return tuple(found.values())

    def _require_same(self) -> None:
        first: tuple[str, NodeFacts] | None = None
        for address, facts in self._facts.items():
            if facts.fault:
                continue
            assert facts.identity is not None
            if facts.toolchain != self._toolchain:
                raise DeviceError(
                    f"{address} ({facts.machine}) compiles with {facts.identity.compiler} {facts.toolchain[:12]}, this "
                    f"machine with {self._compiler} {self._toolchain[:12]}: compiler, headers or flags differ",
                    "install the same compiler, headers and ckh everywhere",
                )
            first = first or (address, facts)
            other = first[1].identity
            if self._measures and other != facts.identity:
                assert other is not None
                raise DeviceError(
                    f"the nodes have different devices: {first[0]} {other.name}, {address} {facts.identity.name}",
                    "measure each kind in a run of its own",
                )

    def _advertise(self, addresses: Sequence[str]) -> None:
        """Tell the scheduler what nodes have: compilers at a time, and devices by their names."""
        for address in addresses:
            facts = self._facts[address]
            if facts.identity is not None:
                devices = {f"ckh {facts.identity.name}": float(len(facts.configs))}
                self._cluster.advertise(address, {COMPILERS: float(facts.compilers), **devices})

    @contextmanager
    def worker(
        self,
        config: WorkerConfig | None = None,
        *,
        timeout_s: float | None = None,
        should_stop: Callable[[], bool] | None = None,
        device: RemoteDevice | None = None,
    ) -> Iterator[JobRunner]:
        """A device of a node, by default always the same; kernels are loaded, without a device, by this machine."""
        if config is not None and config.load_only:
            with super().worker(config, timeout_s=timeout_s, should_stop=should_stop) as own:
                yield own
            return
        self._first = self._first or self.devices()[0]
        chosen, stop = device or self._first, should_stop or self.should_stop
        limit_s = timeout_s or self.limits.timeout_s
        runner = RemoteRunner(self._cluster, self._request, chosen, self._states, limit_s, stop)
        try:
            yield runner
        finally:
            with self._lock:
                self._count(runner)

    def serve(self, choose: Callable[[str], T | None], work: Callable[[JobRunner, T], None]) -> None:
        """As `Driver.serve`, with all devices that are there, or come while it lasts.

        Raises:
            CkhError: what `work` raised first.
            DeviceError: no node was left, and none came within a minute.
        """
        serving = _Serving(choose, work, self.should_stop)
        running: dict[str, threading.Thread] = {}
        alone_since = time.monotonic()
        while running or serving.is_open:
            for device in self._free_devices(running) if serving.is_open else ():
                running[device.name] = threading.Thread(target=self._serve_with, args=(device, serving), daemon=True)
                running[device.name].start()
            if running:
                alone_since = time.monotonic()
            elif time.monotonic() > alone_since + _ALONE_S:
                raise DeviceError("no node of the cluster is left", "go on with --resume")
            time.sleep(_LOOK_S)
            running = {name: thread for name, thread in running.items() if thread.is_alive()}
        if serving.failures:
            raise serving.failures[0]

    def _serve_with(self, device: RemoteDevice, serving: _Serving[T]) -> None:
        """Do tasks with a device until there are none left, or its node is gone."""
        try:
            with self.worker(device=device, should_stop=lambda: serving.is_over) as runner:
                if self._is_alike(runner):
                    serving.do_all(runner)
        except NodeLostError as error:
            note(f"{device.name}: {error.message}; its problem is given to another device")
        except CkhError as error:
            serving.failures.append(error)

    def _free_devices(self, running: Mapping[str, threading.Thread]) -> list[RemoteDevice]:
        return [device for device in self.devices() if device.name not in running.keys() | self._left_out]

    def require_alike(self, setup: Job, built: Sequence[Built]) -> None:
        """Measure reference kernels on every device, and refuse to mix devices that differ.

        Raises:
            DeviceError: one is slower than the fastest by more than is allowed.
        """
        reference = next((one for one in built if one.status is Status.OK), None)
        if reference is None:
            return
        self._reference = setup, reference
        for device in self.devices():
            with self.worker(device=device) as runner:
                self._time_reference(runner)
        if not self.times:
            return
        fastest, slowest = min(self.times, key=self.times.__getitem__), max(self.times, key=self.times.__getitem__)
        ratio = self.times[slowest] / self.times[fastest]
        if ratio > self._allowed_ratio:
            raise DeviceError(
                f"{slowest} takes {ratio:.2f} times as long as {fastest} for the same kernel, {self._allowed_ratio:g} "
                "are allowed",
                "leave it out of the cluster, or find out what slows it",
            )
        if len(self.times) > 1:
            note(f"{len(self.times)} devices differ by {ratio - 1:.1%} on a reference kernel")

    @property
    def _allowed_ratio(self) -> float:
        return DEVICE_RATIO.get(self._request.kind, _DEVICE_RATIO)

    def _time_reference(self, runner: JobRunner) -> None:
        """Measure the reference kernel with a device."""
        assert self._reference is not None
        setup, reference = self._reference
        replies = [reply for _ in range(_ROUNDS) for _, reply in measure(runner, setup, [reference], 1)]
        found = [min(reply.samples_ns) for reply in replies if reply.samples_ns]
        if found:
            self.times[runner.node] = median(found)

    def _is_alike(self, runner: JobRunner) -> bool:
        """Whether a device, which may have come while the run lasts, measures as those that were compared."""
        if self._reference is None or not self.times or runner.node in self.times:
            return True
        others = list(self.times.values())
        self._time_reference(runner)
        own = self.times.pop(runner.node, 0.0)
        ratio = max(own, *others) / min(own, *others) if own else 0.0
        if own and ratio <= self._allowed_ratio:
            self.times[runner.node] = own
            return True
        self._left_out.add(runner.node)
        note(
            f"{runner.node} is left out: a reference kernel differs {ratio:.2f} times between it and the others, "
            f"{self._allowed_ratio:g} are allowed"
        )
        return False

    def __enter__(self) -> ClusterDriver:  # noqa: PYI034 - Self is not in Python 3.10
        """Say what nodes do, if that is wanted."""
        if self._cluster.is_verbose:
            self._open.enter_context(self._states.said())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the processes that nodes keep for this run."""
        self._open.close()
        with suppress(DeviceError):  # the cluster is gone, and they with it
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
    """What builds kernels and runs them: this machine, or a cluster's nodes.

    Args:
        cluster: None: this machine.
        request: the device that nodes open.
        device: the same here.
        limits: as `Driver`.
        should_stop: as `Driver`.
        measures: whether devices are used, and not compilers alone.

    Raises:
        DeviceError: the device, or no node, can be used.
    """
    if cluster is not None:
        return ClusterDriver(cluster, request, device, limits, should_stop, measures=measures)
    if measures:
        require_usable(device)
    return Driver(device, limits, should_stop)
