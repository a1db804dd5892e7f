"""Calls that run on the workers of a cluster.

What runs there is a plain function of a module of ckh with plain arguments. A call is given to another worker when its
own dies; it may then run twice, and whoever takes the results must be able to bear that.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckh.cluster.on_scheduler import are_called, claim, join, offer, workers_of
from ckh.cluster.on_worker import set_resources
from ckh.errors import CkhError, DeviceError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from distributed import Client, Future

_ALONE_S = 60  # without any worker
_POLL_S = 0.25
_LOOK_S = 1.0  # between looks for workers that came or went
_RETRIES = 3  # of a call whose worker dies
_AHEAD = 2  # calls that wait for each that runs, so that no worker waits for the client
# What Dask raises when who should answer is gone. Its TimeoutError is asyncio's: Python's own only from 3.11 on.
LOST = (OSError, asyncio.TimeoutError)


class NodeLostError(CkhError):
    """The worker that was to run a call is gone."""

    exit_code = ExitCode.NO_DEVICE
    default_code = "node-lost"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A worker of the cluster: its address, the name of its machine, and how many calls it runs at a time."""

    address: str
    host: str
    slots: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a module of ckh and its arguments.

    Attributes:
        function: it runs on a worker.
        args: its arguments; they are sent with it.
        key: two calls of one key, of whatever client, run once; empty: the call is like no other.
        needs: what it takes of a worker's resources while it runs.
        on: the address of the only worker that may run it; empty: any.
        joins: whether the call of another client with this key is waited for, which `claim` named.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    key: str = ""
    needs: dict[str, float] = field(default_factory=dict)
    on: str = ""
    joins: bool = False


class Cluster:
    """The workers behind a client of Dask.

    Attributes:
        client: Dask's own.
        is_verbose: whether to say from time to time what the workers do.
    """

    def __init__(self, client: Client, *, is_verbose: bool = False) -> None:
        self.client, self.is_verbose = client, is_verbose
        self._nodes: tuple[ClusterNode, ...] = ()
        self._looked_at = -_LOOK_S
        self._alone_since: float | None = None
        self._lock = threading.Lock()

    def nodes(self) -> tuple[ClusterNode, ...]:
        """The workers that there are, or were a moment ago, by address.

        Raises:
            DeviceError: the scheduler is gone, or there was no worker for a minute.
        """
        with self._lock:
            self._require_alive()
            now = time.monotonic()
            if now >= self._looked_at + _LOOK_S:
                # Not `client.scheduler_info`: now and then that gives what Dask's own timer fetched, without workers.
                self._nodes = tuple(ClusterNode(*one) for one in self.on_scheduler(workers_of))
                self._looked_at = time.monotonic()
                self._alone_since = None if self._nodes else self._alone_since or now
            if self._alone_since is not None and now > self._alone_since + _ALONE_S:
                raise DeviceError("no worker of the cluster is left", "go on with --resume", code="no-nodes")
            return self._nodes

    def open_calls(self) -> dict[str, int]:
        """How many calls each worker has, running or about to, by address.

        Raises:
            DeviceError: the scheduler is gone.
        """
        with _asked():
            return {address: len(calls) for address, calls in self.client.processing().items()}

    def everywhere(
        self, function: Callable[..., Any], *args: Any, on: Sequence[str] | None = None, **named: Any
    ) -> dict[str, Any]:
        """Run a function on every worker, or on those that are named; its results by address.

        Workers that are gone are left out.

        Raises:
            CkhError: the function raised it.
            DeviceError: the scheduler is gone.
        """
        workers = None if on is None else list(on)
        with _asked():
            found: dict[str, Any] = self.client.run(function, *args, workers=workers, on_error="return", **named)
        for one in found.values():
            if isinstance(one, Exception) and not isinstance(one, OSError):
                raise one
        return {address: one for address, one in sorted(found.items()) if not isinstance(one, Exception)}

    def on_scheduler(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in the scheduler's process, which it gets as `dask_scheduler`; its result.

        Raises:
            DeviceError: the scheduler is gone.
        """
        with _asked():
            return self.client.run_on_scheduler(function, *args)

    def advertise(self, address: str, resources: dict[str, float]) -> None:
        """Have a worker report its resources, of which calls take a part (`Call.needs`), to the scheduler.

        Raises:
            DeviceError: the scheduler is gone.
        """
        self.everywhere(set_resources, resources, on=[address])
        self.on_scheduler(offer, address)

    def claim(self, names: Sequence[str], key: str) -> dict[str, str]:
        """Claim what a call is about to compute, so that no other client computes it meanwhile.

        Returns:
            The names that calls of other clients compute already, each with the key of that call, which can be joined;
            all others are claimed for `key`, which must be called at once.

        Raises:
            DeviceError: the scheduler is gone.
        """
        while True:
            found: dict[str, str] = self.on_scheduler(claim, list(names), key, self.client.id)
            if self.on_scheduler(are_called, list(set(found.values()))):
                return found
            time.sleep(_POLL_S)  # claimed, and about to be called, or it was done a moment ago

    def result(self, call: Call, should_stop: Callable[[], bool] = lambda: False) -> Any:
        """Run a call on one worker; its result, None if it was stopped before it ended.

        Raises:
            CkhError: the call raised it.
            NodeLostError: its worker is gone.
            DeviceError: the scheduler is gone.
        """
        with closing(self.results([call], should_stop)) as found:
            return next((result for _, result in found), None)

    def results(
        self, calls: Iterable[Call], should_stop: Callable[[], bool] = lambda: False
    ) -> Generator[tuple[Call, Any], None, None]:
        """Calls with what they give, as they end; no more than the workers need are given out at a time.

        Calls that have not begun when the iteration ends, or `should_stop`, are withdrawn.

        Raises:
            CkhError: a call raised it.
            NodeLostError: the worker that a call names is gone.
            DeviceError: the scheduler is gone, or the workers that were given a call died, one after the other.
        """
        ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        open_calls: dict[Future, Call] = {}
        left = iter(calls)
        try:
            while not should_stop():
                for call in self._next(left, len(open_calls)):
                    future = self._submit(call)
                    open_calls[future] = call
                    future.add_done_callback(ended.put)
                if not open_calls:
                    return
                self._require_node(open_calls.values())
                with suppress(queue.Empty):
                    future = ended.get(timeout=_POLL_S)
                    yield open_calls.pop(future), _result(future)
        finally:
            with suppress(*LOST):
                self.client.cancel(list(open_calls))

    def _next(self, left: Iterator[Call], count: int) -> Iterator[Call]:
        """Calls to give out, where so many are open."""
        most = _AHEAD * max(1, sum(node.slots for node in self.nodes()))
        for _ in range(most - count):
            call = next(left, None)
            if call is None:
                return
            yield call

    def _require_node(self, calls: Iterable[Call]) -> None:
        """Refuse to wait for workers that are gone: Dask does, for a worker that is named."""
        here = {node.address for node in self.nodes()}
        if any(call.on not in here for call in calls if call.on):
            raise NodeLostError("its worker was lost")

    def _submit(self, call: Call) -> Future:
        if call.joins:
            from distributed import Future

            future = Future(call.key, self.client)
            self.on_scheduler(join, call.key, self.client.id)
            return future
        key = {"key": call.key} if call.key else {"pure": False}
        where = {"workers": [call.on]} if call.on else {}
        needs = call.needs or None
        return self.client.submit(call.function, *call.args, retries=_RETRIES, resources=needs, **key, **where)

    def _require_alive(self) -> None:
        if self.client.status != "running":
            raise gone(f"the connection is {self.client.status}")


@contextmanager
def _asked() -> Iterator[None]:
    """Raises a DeviceError where the scheduler, or who else was asked, does not answer any more."""
    try:
        yield
    except LOST as error:
        raise gone(error) from error


def _result(future: Future) -> Any:
    """The result of a call; raises what the call raised."""
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
    """The error of a cluster whose scheduler does not answer any more."""
    return DeviceError(f"lost the cluster: {why}", "results are saved: continue with --resume", code="cluster-lost")
