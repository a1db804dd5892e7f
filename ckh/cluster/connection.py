"""Finding the cluster at an address: a scheduler that answers, with workers, all of them with the same ckh."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.cluster.calls import LOST, Cluster, gone
from ckh.cluster.on_scheduler import has_pages
from ckh.cluster.on_worker import own_version
from ckh.errors import DeviceError, UsageError
from ckh.files.jsonfields import read_json
from ckh.text.log import note
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client, LocalCluster

CLUSTER_HELP = "Work on a Dask cluster: tcp://HOST:PORT, tls://HOST:PORT, a scheduler's file, or local:N."
_PROTOCOLS = ("tcp://", "tls://", "ucx://", "ws://", "wss://")
_LOCAL = "local:"
_INSTALL = "pip install 'ckh[cluster]'"
_LOGGERS = ("distributed", "tornado")
_MOST_LOCAL = 1024
_CONNECT_S = 15
_ANSWER_S = 30  # until a scheduler has answered
_WORKER_S = 60  # until there is a worker


@contextmanager
def connected(address: str, *, is_verbose: bool = False) -> Iterator[Cluster]:
    """The cluster at an address, for as long as the context lasts.

    Args:
        address: of a scheduler; or the file in which one has written its address; or `local:N`, which starts N workers
            on this machine, which take no other client.
        is_verbose: whether to say from time to time what the workers do.

    Raises:
        UsageError: Dask is not installed, or that is not an address.
        DeviceError: nobody answers there, or a worker has another ckh.
    """
    try:
        import distributed
    except ImportError as error:
        raise UsageError("--cluster needs Dask, which is not installed", _INSTALL, code="not-installed") from error
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
def _backend(address: str) -> Iterator[str | LocalCluster]:
    """What a client connects to: a scheduler's address, or local workers, which live as long as the context."""
    if address.startswith(_LOCAL):
        with _scratch_folder(), _local(address) as local:
            yield local
    elif address.startswith(_PROTOCOLS):
        yield address
    elif Path(address).is_file():
        yield _address_in(Path(address))
    else:
        raise UsageError(
            f"--cluster {address}: neither an address ({', '.join(_PROTOCOLS)}…), nor local:N, nor a scheduler's file",
            code="bad-address",
        )


@contextmanager
def _scratch_folder() -> Iterator[None]:
    """A folder in which Dask keeps its own while the context lasts; it puts that on `sys.path`, so it is ours alone."""
    import dask

    with (
        tempfile.TemporaryDirectory(prefix="ckh-dask-", ignore_cleanup_errors=True) as folder,
        dask.config.set({"temporary-directory": folder}),
    ):
        yield


def _local(address: str) -> LocalCluster:
    """Workers of this machine, to which only this process has the key: all users reach ports of the loopback."""
    from distributed import LocalCluster
    from distributed.security import Security

    count = address.removeprefix(_LOCAL)
    if not count.isascii() or not count.isdecimal() or not 0 < int(count[:9]) <= _MOST_LOCAL:
        raise UsageError(
            f"--cluster {address}: N of local:N must be a number from 1 to {_MOST_LOCAL}", code="out-of-range"
        )
    try:
        security = Security.temporary()
    except ImportError as error:
        raise UsageError(
            f"--cluster {address} needs cryptography, which is not usable", _INSTALL, code="not-installed"
        ) from error
    try:
        return LocalCluster(
            n_workers=int(count),
            threads_per_worker=1,
            host="127.0.0.1",
            security=security,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
    except (RuntimeError, OSError, TimeoutError) as error:
        raise DeviceError(f"local workers do not start: {error}", "try again, or fewer", code="no-nodes") from error


def _address_in(file: Path) -> str:
    """The address that a scheduler wrote into its file."""
    try:
        return str(read_json(file)["address"])
    except (LookupError, TypeError) as error:
        raise UsageError(
            f"--cluster {file}: not a scheduler's file",
            "write one with: dask scheduler --scheduler-file",
            code="bad-address",
        ) from error


@contextmanager
def _client(distributed: Any, address: str, where: str | LocalCluster) -> Iterator[Client]:
    seconds = _ANSWER_S
    try:
        if isinstance(where, str):
            asyncio.run(asyncio.wait_for(_shake_hands(where), _ANSWER_S))
        seconds = _CONNECT_S
        client = distributed.Client(where, timeout=_CONNECT_S, set_as_default=True)
    except asyncio.TimeoutError as error:  # before OSError, which it is one of from Python 3.11 on
        raise DeviceError(
            f"no cluster answers at {address}: it accepts connections but sent nothing within {seconds} s",
            "is that a scheduler, and does it run?",
            code="cluster-silent",
        ) from error
    except TypeError as error:  # how Dask says that it has no certificates
        raise DeviceError(
            f"{address} needs certificates: {error}",
            "name them in Dask's configuration, distributed.comm.tls",
            code="certificate",
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise DeviceError(
            f"no cluster answers at {address}: {error}", "start one with: dask scheduler", code="no-cluster"
        ) from error
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
        raise DeviceError(
            "the cluster has no workers", "start some with: dask worker ADDRESS", code="no-nodes"
        ) from error
    except OSError as error:
        raise gone(error) from error


def _require_same(cluster: Cluster) -> None:
    """Refuse a scheduler and workers that have no ckh, or another one."""
    found: dict[str, Any] = {}
    try:
        for address, version in cluster.client.run(own_version, on_error="return").items():
            found[f"the worker {address}"] = version
        found["the scheduler"] = cluster.client.run_on_scheduler(own_version)
    except LOST as error:
        raise gone(error) from error
    except Exception as error:  # noqa: BLE001 - whatever went wrong there
        found["the scheduler"] = error
    for who, version in found.items():
        if isinstance(version, Exception) and not isinstance(version, OSError):
            raise DeviceError(
                f"{who} cannot load ckh: {version}", "install the same ckh there", code="node-without-ckh"
            )
        if isinstance(version, str) and version != __version__:
            raise DeviceError(
                f"{who} has ckh {version}, this is {__version__}", "install the same", code="other-version"
            )
