"""Calls executed on the workers of a cluster.

A call is a plain function of a ckh module with plain arguments. If its worker dies, it is repeated on another worker,
so it may run twice; the consumer of its results must tolerate that.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from ckh.cluster.on_dask import offer, set_resources, workers_of
from ckh.errors import CkhError, DeviceError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from distributed import Client, Future

_ALONE_S = 60  # without any worker
_POLL_S = 0.25
_LOOK_S = 1.0  # between checks for workers that joined or left
_RETRIES = 3  # of a call whose worker dies
_RESUME = "continue with --resume"
_AHEAD = 2  # queued calls per running one, so that no worker waits for the client
# Raised by Dask if the other side is gone. Its TimeoutError is asyncio's, which is Python's own only since 3.11.
LOST = (OSError, asyncio.TimeoutError)


class NodeLostError(CkhError):
    """The worker selected for a call is gone."""

    exit_code = ExitCode.NO_DEVICE
    default_code = "node-lost"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A worker of the cluster: its address, the name of its machine, and its number of parallel calls."""

    address: str
    host: str
    slots: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a ckh module and its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    key: str = ""  # calls with the same key, of any client, run once
    needs: dict[str, float] = field(default_factory=dict)  # worker resources used while it runs
    on: str = ""  # address of the only worker that may run it; empty: any


class Cluster:
    """The workers of a Dask client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._nodes: tuple[ClusterNode, ...] = ()
        self._looked_at = -_LOOK_S
        self._alone_since: float | None = None
        self._lock = threading.Lock()

    def nodes(self) -> tuple[ClusterNode, ...]:
        """Current workers by address, or the last known ones."""
        with self._lock:
            if self.client.status != "running":
                raise gone(f"the connection is {self.client.status}")
            now = time.monotonic()
            if now >= self._looked_at + _LOOK_S:
                # Not `client.scheduler_info`, which sometimes returns the data of Dask's own timer, without workers.
                self._nodes = tuple(ClusterNode(*worker) for worker in self.on_scheduler(workers_of))
                self._looked_at = time.monotonic()
                self._alone_since = None if self._nodes else self._alone_since or now
            if self._alone_since is not None and now > self._alone_since + _ALONE_S:
                raise DeviceError("no worker of the cluster is left", _RESUME, code="no-nodes")
            return self._nodes

    def everywhere(
        self, function: Callable[..., Any], *args: Any, on: Sequence[str] | None = None, **named: Any
    ) -> dict[str, Any]:
        """Run a function on all workers, or on the given ones; returns results by address.

        Workers that are gone are left out.
        """
        workers = None if on is None else list(on)
        with _asked():
            done: dict[str, Any] = self.client.run(function, *args, workers=workers, on_error="return", **named)
        for answer in done.values():
            if isinstance(answer, Exception) and not isinstance(answer, OSError):
                raise answer
        return {address: answer for address, answer in sorted(done.items()) if not isinstance(answer, Exception)}

    def on_scheduler(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in the scheduler's process, passed as `dask_scheduler`; returns its result."""
        with _asked():
            return self.client.run_on_scheduler(function, *args)

    def advertise(self, address: str, resources: dict[str, float]) -> None:
        """Register a worker's resources, which calls use (`Call.needs`), with the scheduler."""
        self.everywhere(set_resources, resources, on=[address])
        self.on_scheduler(offer, address)

    def result(self, call: Call, should_stop: Callable[[], bool] = lambda: False) -> Any:
        """Run a call on one worker; returns its result, None if it was stopped before it ended."""
        with closing(self.results([call], should_stop)) as outcome:
            return next((result for _, result in outcome), None)

    def results(
        self, calls: Iterable[Call], should_stop: Callable[[], bool] = lambda: False
    ) -> Generator[tuple[Call, Any], None, None]:
        """Yield calls with their results as they end; only as many calls are submitted as keep the workers busy.

        Calls that have not begun when the iteration ends, or after `should_stop`, are cancelled.
        """
        ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        open_calls: dict[Future, Call] = {}
        left = iter(calls)
        try:
            while not should_stop():
                most = _AHEAD * max(1, sum(node.slots for node in self.nodes()))
                for call in islice(left, max(0, most - len(open_calls))):
                    future = self._submit(call)
                    open_calls[future] = call
                    future.add_done_callback(ended.put)
                if not open_calls:
                    return
                here = {node.address for node in self.nodes()}
                # Dask would wait for a missing worker that a call is bound to.
                if any(call.on not in here for call in open_calls.values() if call.on):
                    raise NodeLostError("its worker was lost")
                with suppress(queue.Empty):
                    future = ended.get(timeout=_POLL_S)
                    yield open_calls.pop(future), _result(future)
        finally:
            with suppress(*LOST):
                self.client.cancel(list(open_calls))

    def _submit(self, call: Call) -> Future:
        key = {"key": call.key} if call.key else {"pure": False}
        where = {"workers": [call.on]} if call.on else {}
        needs = call.needs or None
        return self.client.submit(call.function, *call.args, retries=_RETRIES, resources=needs, **key, **where)


@contextmanager
def _asked() -> Iterator[None]:
    """Raise a DeviceError if the scheduler or another process no longer answers."""
    try:
        yield
    except LOST as error:
        raise gone(error) from error


def _result(future: Future) -> Any:
    """Result of a call; raises what the call raised."""
    from distributed import CancelledError, KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise DeviceError(f"every worker that ran this call died: {error}", code="workers-died") from error
    except CancelledError as error:
        raise gone("the connection to its scheduler was lost") from error
    except LOST as error:
        raise gone(error) from error


def gone(why: object) -> DeviceError:
    """Error of a cluster whose scheduler no longer answers."""
    return DeviceError(f"lost the cluster: {why}", f"results are saved: {_RESUME}", code="cluster-lost")
