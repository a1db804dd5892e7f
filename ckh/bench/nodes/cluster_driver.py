"""A driver whose kernels are compiled, and whose problems are measured, by the nodes of a cluster.

Of a problem all candidates are measured by one device, in one call: when its node dies, the problem is given to another
device, whole. Rows are made here, and the journal is written here, so that a row that comes twice is stored once.

Kernels that the nodes of a cluster build, into the cache of this machine.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.devices.device_choice import require_usable
from ckh.bench.nodes.remote import build_here, cached, describe, end_devices, whole_files
from ckh.bench.nodes.remote_device import SHIPPED, NodeStates, RemoteDevice, RemoteRunner
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.serving import Serving
from ckh.cluster.calls import Call, NodeLostError
from ckh.errors import CkhError, DeviceError
from ckh.schema import Status
from ckh.text.log import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from ckh.bench.compilation.compile import BuildOrder, Built
    from ckh.bench.devices.device import Device, DeviceIdentity
    from ckh.bench.nodes.remote import DeviceRequest, NodeFacts
    from ckh.bench.supervision.alike import Alike
    from ckh.bench.supervision.limits import BenchLimits
    from ckh.bench.supervision.protocol import WorkerConfig
    from ckh.bench.supervision.runner import JobRunner
    from ckh.cluster.calls import Cluster

T = TypeVar("T")
_LOOK_S = 0.1  # between looks for threads that ended, and nodes that came
_ALONE_S = 60.0  # without any node that can be used


class ClusterDriver(Driver):
    """A driver on a cluster.

    Args:
        cluster: the nodes.
        request: the device that each of them opens.
        device: the same here, for the sources of kernels.
        limits: as `Driver`; `jobs` is not used.
        should_stop: as `Driver`.
        measures: whether devices are used, and not compilers alone.

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
        self._alike: Alike | None = None
        self._left_out: set[str] = set()  # devices that differ from the others
        self._facts: dict[str, NodeFacts] = {}
        self._toolchain = hashlib.sha256(device.cache_salt()).hexdigest()
        self._compiler = device.identity().compiler
        super().__init__(device, limits, should_stop, ())
        found = self.devices()
        if not found:
            faults = sorted({facts.fault for facts in self._facts.values()})
            raise DeviceError(f"no usable worker: {'; '.join(faults) or 'all were lost'}", code="no-nodes")
        self._first = found[0]  # that works where no device is named
        self.configs = tuple(one.facts.configs[one.number] for one in found)
        self.jobs = sum(facts.compilers for facts in self._facts.values())

    is_spread = True

    @property
    def names(self) -> frozenset[str]:
        """The names of the devices that measure."""
        return frozenset(device.name for device in self.devices()) - self._left_out

    @property
    def identity(self) -> DeviceIdentity:
        """That of the devices, which are all of one kind."""
        assert self._first.facts.identity is not None
        return self._first.facts.identity

    def _make_builder(self) -> KernelBuilder:
        timeout_s = self.limits.compile_timeout_s
        return ClusterBuilder(self._cluster, self._request, self.device, timeout_s, self._see_nodes)

    def devices(self) -> tuple[RemoteDevice, ...]:
        """The devices of all nodes that are there now, each of a machine's once.

        Raises:
            DeviceError: two nodes differ.
        """
        self._see_nodes()
        nodes = {node.address: node for node in self._cluster.nodes()}
        found: dict[tuple[str, int], RemoteDevice] = {}
        for address, node in nodes.items():
            facts = self._facts.get(address)
            if facts is None or facts.fault:
                continue
            free = [number for number in range(len(facts.configs)) if (facts.machine, number) not in found]
            for number in free[: node.slots]:
                found[facts.machine, number] = RemoteDevice(node, facts, number)
        return tuple(found.values())

    def _see_nodes(self) -> None:
        """Have nodes that are new describe themselves, and advertise what they have."""
        new = [node.address for node in self._cluster.nodes() if node.address not in self._facts]
        if new:
            described = self._cluster.everywhere(describe, self._request, on=new, measures=self._measures)
            self._facts |= described
            self._require_same()
            self._advertise(list(described))

    def _require_same(self) -> None:
        """Refuse nodes that compile otherwise than this machine, or whose devices are of several kinds."""
        usable = [(address, facts) for address, facts in self._facts.items() if facts.identity is not None]
        for address, facts in usable:
            first, other = usable[0][0], usable[0][1].identity
            assert facts.identity is not None
            assert other is not None
            if facts.toolchain != self._toolchain:
                raise DeviceError(
                    f"{address} ({facts.machine}) compiles with {facts.identity.compiler} {facts.toolchain[:12]}, this "
                    f"machine with {self._compiler} {self._toolchain[:12]}: compiler, headers or flags differ",
                    "install the same compiler, headers and ckh everywhere",
                    code="nodes-differ",
                )
            if self._measures and (what := other.difference(facts.identity)):
                raise DeviceError(
                    f"the nodes have different devices, {first} ({other.name}) and {address} ({facts.identity.name}): "
                    f"{what}",
                    "measure each kind in a run of its own",
                    code="nodes-differ",
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
        serving = Serving(choose, work, self.should_stop)
        running: dict[str, threading.Thread] = {}
        alone_since = time.monotonic()
        while running or serving.is_open:
            for device in self._free_devices(running, serving):
                running[device.name] = threading.Thread(target=self._serve_with, args=(device, serving), daemon=True)
                running[device.name].start()
            if running:
                alone_since = time.monotonic()
            elif time.monotonic() > alone_since + _ALONE_S:
                raise DeviceError("no worker of the cluster is left", "go on with --resume", code="no-nodes")
            time.sleep(_LOOK_S)
            running = {name: thread for name, thread in running.items() if thread.is_alive()}
        if serving.failures:
            raise serving.failures[0]

    def _serve_with(self, device: RemoteDevice, serving: Serving[T]) -> None:
        """Do tasks with a device until there are none left, or its worker was lost."""
        try:
            with self.worker(device=device, should_stop=lambda: serving.is_over) as runner:
                if self._is_alike(runner):
                    serving.do_all(runner)
        except NodeLostError as error:
            note(f"{device.name}: {error.message}; its problem is given to another device")
        except CkhError as error:
            serving.failures.append(error)

    def _free_devices(self, running: Mapping[str, threading.Thread], serving: Serving[T]) -> list[RemoteDevice]:
        if serving.is_over:
            return []
        here = {device.name: device for device in self.devices() if device.name not in self._left_out}
        serving.see(set(here))
        return [device for name, device in here.items() if name not in running and serving.is_wanted(name)]

    def _time(self, alike: Alike) -> None:
        self._alike = alike
        for device in self.devices():
            with suppress(NodeLostError), self.worker(device=device) as runner:  # it is compared when it comes back
                alike.add(runner)

    def _is_alike(self, runner: JobRunner) -> bool:
        """True if a device, which may have come while the run lasts, measures as those that were compared."""
        if self._alike is None or self._alike.admits(runner):
            return True
        self._left_out.add(runner.node)
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
    """The driver that builds kernels and runs them: this machine, or a cluster's nodes.

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


COMPILERS = "ckh-compilers"  # the resource of nodes that a compiler takes


class ClusterBuilder(KernelBuilder):
    """Builds kernels on the nodes.

    Args:
        cluster: the nodes.
        request: the device that each of them opens.
        device: the same here, for the sources of kernels.
        timeout_s: longest time of a compiler, in seconds.
        see_nodes: has nodes that came since describe themselves.
    """

    def __init__(
        self, cluster: Cluster, request: DeviceRequest, device: Device, timeout_s: float, see_nodes: Callable[[], None]
    ) -> None:
        super().__init__(device, timeout_s)
        self._cluster, self._request, self._see_nodes = cluster, request, see_nodes

    def _build_units(
        self, together: Sequence[Sequence[str]], order: BuildOrder, jobs: int, advance: Callable[[int, str], None]
    ) -> Iterator[dict[str, Built]]:
        """Build units; yields results as they come. What a node has, or another client builds, is not built again."""
        del jobs  # nodes say how many compilers they can run

        def should_stop() -> bool:
            self._see_nodes()  # one that was started again gets no call before it has said what it has
            return order.should_stop()

        found = self._from_nodes([key for unit in together for key in unit], order)
        advance(len(found), "")
        yield found
        units = [left for unit in together if (left := [key for key in unit if key not in found])]
        done: set[str] = set()
        for _, (made, files) in self._cluster.results(self._calls(units, order), should_stop):
            self._cache.adopt(files)
            new = {key: one for key, one in made.items() if key in order.sources and key not in done}
            done |= new.keys()
            advance(sum(one.status is not Status.COMPILE_INTERRUPTED for one in new.values()), "")
            yield {
                key: replace(one, library=str(self._cache.path(key))) if one.library else one
                for key, one in new.items()
            }

    def _require_toolchain(self, order: BuildOrder) -> None:
        """Nothing: nodes that build find out about theirs."""

    def _from_nodes(self, keys: Sequence[str], order: BuildOrder) -> dict[str, Built]:
        """The libraries in the caches of nodes, taken into this one."""
        left = set(keys)
        calls = []
        for address, known in self._cluster.everywhere(cached, list(keys)).items():
            of_node = [key for key in known if key in left]
            left -= set(of_node)
            starts = range(0, len(of_node), SHIPPED)
            calls += [Call(whole_files, (of_node[start : start + SHIPPED],), on=address) for start in starts]
        with suppress(NodeLostError):  # what it had is built
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
