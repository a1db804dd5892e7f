"""Kernels that the nodes of a cluster build, into the cache of this machine."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.nodes.remote import build_here, cached, whole_files
from ckh.bench.nodes.remote_device import SHIPPED
from ckh.cluster.calls import Call, NodeLostError
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.bench.compilation.compile import BuildOrder, Built
    from ckh.bench.devices.device import Device
    from ckh.bench.nodes.remote import DeviceRequest
    from ckh.cluster.calls import Cluster

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
