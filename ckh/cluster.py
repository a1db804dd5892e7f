"""A cluster of machines: a Dask scheduler with its workers, and calls that run there.

`ckh` brings no scheduler of its own. What runs on workers is a plain function of a module of ckh with plain arguments,
so every machine needs the same ckh. A call is given to another worker when its own dies; it may then run twice, and
whoever takes the results must be able to bear that.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.dask_scheduler import are_called, claim, has_pages, join, offer
from ckh.errors import CkhError, DeviceError, ExitCode, UsageError
from ckh.jsonfields import read_json
from ckh.log import note
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from distributed import Client, Future

CLUSTER_HELP = "Work on a Dask cluster: tcp://HOST:PORT, tls://HOST:PORT, a scheduler's file, or local:N."
_PROTOCOLS = ("tcp://", "tls://", "ucx://", "ws://", "wss://")
_LOCAL = "local:"
_LOGGERS = ("distributed", "tornado")
_MOST_LOCAL = 1024
_CONNECT_S = 15
_ANSWER_S = 30  # until a scheduler has answered
_WORKER_S = 60  # until there is a worker
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
                workers = self.client.scheduler_info(n_workers=-1)["workers"]
                self._nodes = tuple(
                    ClusterNode(at, one["host"], one["nthreads"]) for at, one in sorted(workers.items())
                )
                self._looked_at = time.monotonic()
                self._alone_since = None if self._nodes else self._alone_since or now
            if self._alone_since is not None and now > self._alone_since + _ALONE_S:
                raise DeviceError("no node of the cluster is left", "go on with --resume")
            return self._nodes

    def open_calls(self) -> dict[str, int]:
        """How many calls each worker has, running or about to, by address.

        Raises:
            DeviceError: the scheduler is gone.
        """
        try:
            return {address: len(calls) for address, calls in self.client.processing().items()}
        except LOST as error:
            raise _gone(error) from error

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
        try:
            found: dict[str, Any] = self.client.run(function, *args, workers=workers, on_error="return", **named)
        except LOST as error:
            raise _gone(error) from error
        for one in found.values():
            if isinstance(one, Exception) and not isinstance(one, OSError):
                raise one
        return {address: one for address, one in sorted(found.items()) if not isinstance(one, Exception)}

    def on_scheduler(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in the scheduler's process, which it gets as `dask_scheduler`; its result.

        Raises:
            DeviceError: the scheduler is gone.
        """
        try:
            return self.client.run_on_scheduler(function, *args)
        except LOST as error:
            raise _gone(error) from error

    def advertise(self, address: str, resources: dict[str, float]) -> None:
        """Have a worker report its resources, of which calls take a part (`Call.needs`), to the scheduler.

        Raises:
            DeviceError: the scheduler is gone.
        """
        self.everywhere(_set_resources, resources, on=[address])
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
        ended = threading.Event()
        future = self._submit(call)
        future.add_done_callback(lambda _: ended.set())
        try:
            while not ended.wait(_POLL_S):
                if should_stop():
                    return None
                self._require_node([call])
            return _result(future)
        finally:
            with suppress(*LOST):
                self.client.cancel([future])

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
            raise NodeLostError("its node is gone")

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
            raise _gone(f"the connection is {self.client.status}")


@contextmanager
def connected(address: str, *, is_verbose: bool = False) -> Iterator[Cluster]:
    """The cluster at an address, for as long as the context lasts.

    Args:
        address: of a scheduler; or the file in which one has written its address; or `local:N`, which starts N workers
            on this machine, reachable from it alone.
        is_verbose: whether to say from time to time what the workers do.

    Raises:
        UsageError: Dask is not installed, or that is no address.
        DeviceError: nobody answers there, or a worker has another ckh.
    """
    try:
        import distributed
    except ImportError as error:
        raise UsageError("--cluster needs Dask, which is not installed", "pip install 'ckh[cluster]'") from error
    # What matters of a node's end is said here, in one line. Dask gives some of its loggers levels of their own.
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Sending large graph")  # parts of a dataset have some megabytes
    with _backend(address) as where, _client(distributed, address, where) as client:
        cluster = Cluster(client, is_verbose=is_verbose)
        _await_workers(cluster)
        _require_same(cluster)
        pages = f", dashboard {client.dashboard_link}" if cluster.on_scheduler(has_pages) else ""
        note(f"cluster {client.scheduler.address}{pages}")
        yield cluster


@contextmanager
def everywhere_or_here(address: str | None) -> Iterator[Cluster | None]:
    """Lets what joblib runs at a time run on a cluster, if an address is given, which it yields.

    Raises:
        UsageError: as `connected`.
        DeviceError: as `connected`.
    """
    if address is None:
        yield None
        return
    from joblib import parallel_config

    with connected(address) as cluster, parallel_config(backend="dask", n_jobs=-1):
        yield cluster


@contextmanager
def _backend(address: str) -> Iterator[dict[str, Any]]:
    """The argument to create a client with; local workers live as long as the context."""
    if address.startswith(_LOCAL):
        from distributed import LocalCluster

        count = address.removeprefix(_LOCAL)
        if not count.isascii() or not count.isdecimal() or not 0 < int(count[:9]) <= _MOST_LOCAL:
            raise UsageError(f"--cluster {address}: N of local:N must be a number from 1 to {_MOST_LOCAL}")
        try:
            local = LocalCluster(
                n_workers=int(count),
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        except (RuntimeError, OSError, TimeoutError) as error:
            raise DeviceError(f"local workers do not start: {error}", "try again, or fewer") from error
        with local:
            yield {"address": local}
    elif address.startswith(_PROTOCOLS):
        yield {"address": address}
    elif Path(address).is_file():
        yield {"address": _address_in(Path(address))}
    else:
        raise UsageError(
            f"--cluster {address}: neither an address ({', '.join(_PROTOCOLS)}…), nor local:N, nor a scheduler's file"
        )


def _address_in(file: Path) -> str:
    """The address that a scheduler wrote into its file."""
    try:
        return str(read_json(file)["address"])
    except (LookupError, TypeError) as error:
        raise UsageError(
            f"--cluster {file}: that is no scheduler's file", "one is written by: dask scheduler --scheduler-file"
        ) from error


@contextmanager
def _client(distributed: Any, address: str, where: dict[str, Any]) -> Iterator[Client]:
    seconds = _ANSWER_S
    try:
        if isinstance(where["address"], str):
            asyncio.run(asyncio.wait_for(_shake_hands(where["address"]), _ANSWER_S))
        seconds = _CONNECT_S
        client = distributed.Client(**where, timeout=_CONNECT_S, set_as_default=True)
    except asyncio.TimeoutError as error:  # before OSError, which it is one of from Python 3.11 on
        raise DeviceError(
            f"no cluster answers at {address}: connections are taken, but nothing is said within {seconds} s",
            "is that a scheduler, and does it run?",
        ) from error
    except TypeError as error:  # how Dask says that it has no certificates
        raise DeviceError(
            f"{address} needs certificates: {error}", "name them in Dask's configuration, distributed.comm.tls"
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise DeviceError(f"no cluster answers at {address}: {error}", "start one with: dask scheduler") from error
    with client:
        yield client


async def _shake_hands(address: str) -> None:
    """Greet a scheduler and leave: for its answer to a greeting Dask's client waits without end."""
    from distributed.comm import connect
    from distributed.security import Security

    comm = await connect(address, timeout=_CONNECT_S, **Security().get_connection_args("client"))
    comm.abort()


def _await_workers(cluster: Cluster) -> None:
    """Wait until there is a worker.

    Raises:
        DeviceError: there is none for a minute, or the scheduler is gone.
    """
    if cluster.client.scheduler_info()["workers"]:
        return
    note(f"cluster {cluster.client.scheduler.address} has no workers yet")
    try:
        cluster.client.wait_for_workers(1, timeout=_WORKER_S)
    except asyncio.TimeoutError as error:
        raise DeviceError("the cluster has no workers", "start some with: dask worker ADDRESS") from error
    except OSError as error:
        raise _gone(error) from error


def _require_same(cluster: Cluster) -> None:
    """Refuse a scheduler and workers that have no ckh, or another one."""
    found: dict[str, Any] = {}
    try:
        for address, version in cluster.client.run(_own_version, on_error="return").items():
            found[f"the worker {address}"] = version
        found["the scheduler"] = cluster.client.run_on_scheduler(_own_version)
    except LOST as error:
        raise _gone(error) from error
    except Exception as error:  # noqa: BLE001 - whatever went wrong there
        found["the scheduler"] = error
    for who, version in found.items():
        if isinstance(version, Exception) and not isinstance(version, OSError):
            raise DeviceError(f"{who} cannot load ckh: {version}", "install the same ckh there")
        if isinstance(version, str) and version != __version__:
            raise DeviceError(f"{who} has ckh {version}, this is {__version__}", "install the same")


def is_withdrawn() -> bool:
    """On a worker, in a call: whether nobody waits for it any more, because its client was stopped or died.

    Dask lets such a call run to its end, and other calls wait for that.
    """
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


def _own_version() -> str:
    return __version__


async def _set_resources(resources: dict[str, float], dask_worker: Any) -> None:
    await dask_worker.set_resources(**resources)


def _result(future: Future) -> Any:
    """The result of a call; raises what the call raised."""
    from distributed import CancelledError, KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise DeviceError(f"the workers that were given a call died one after the other: {error}") from error
    except CancelledError as error:
        raise _gone("the connection to its scheduler was lost") from error
    except LOST as error:
        raise _gone(error) from error


def _gone(why: object) -> DeviceError:
    return DeviceError(f"the cluster is gone: {why}", "what was measured is saved: go on with --resume")
