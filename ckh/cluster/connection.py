"""Connection to a cluster: a scheduler that answers, with workers, all with the same version of ckh."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing.spawn
import tempfile
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.cluster.calls import LOST, Cluster, gone
from ckh.cluster.on_dask import has_pages, own_version
from ckh.errors import DeviceError, UsageError
from ckh.files.child import isolated_script
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
def connected(address: str) -> Iterator[Cluster]:
    """The cluster at an address, for the duration of the context."""
    try:
        import distributed
    except ImportError as error:
        raise UsageError("--cluster needs Dask, which is not installed", _INSTALL, code="not-installed") from error
    # ckh reports the end of a node in one line. Some of Dask's loggers have their own levels.
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Sending large graph")  # libraries of kernels have some megabytes
    with _backend(address) as where, _client(distributed, address, where) as client:
        cluster = Cluster(client)
        _await_workers(cluster)
        _require_same(cluster)
        pages = f", dashboard {client.dashboard_link}" if cluster.on_scheduler(has_pages) else ""
        note(f"cluster {client.scheduler.address}{pages}")
        yield cluster


@contextmanager
def _backend(address: str) -> Iterator[str | LocalCluster]:
    """Yield the address of a scheduler, or of local workers that end with the context."""
    if address.startswith(_LOCAL):
        import dask

        # Private, as Dask adds it to `sys.path`.
        with (
            tempfile.TemporaryDirectory(prefix="ckh-dask-", ignore_cleanup_errors=True) as folder,
            dask.config.set({"temporary-directory": folder}),
            _isolated(Path(folder)),
        ):
            local = _local(address)
            try:
                yield local
            finally:
                with suppress(AssertionError):  # Dask may join a worker that it has not started again yet
                    local.close()
    elif address.startswith(_PROTOCOLS):
        yield address
    elif Path(address).is_file():
        try:
            scheduler = str(read_json(Path(address))["address"])
        except (LookupError, TypeError) as error:
            raise UsageError(
                f"--cluster {address}: not a scheduler's file",
                "write one with: dask scheduler --scheduler-file",
                code="bad-address",
            ) from error
        yield scheduler
    else:
        raise UsageError(
            f"--cluster {address}: neither an address ({', '.join(_PROTOCOLS)}…), nor local:N, nor a scheduler's file",
            code="bad-address",
        )


@contextmanager
def _isolated(folder: Path) -> Iterator[None]:
    """Processes of multiprocessing, which start as `python -c`, do not import from the current folder."""
    usual, python = multiprocessing.spawn.get_executable(), folder / "python"
    python.write_text(isolated_script(), encoding="utf-8")
    python.chmod(0o700)
    multiprocessing.set_executable(str(python))
    try:
        yield
    finally:
        multiprocessing.set_executable(usual)


def _local(address: str) -> LocalCluster:
    """Local workers, with a key known only to this process: any user can reach loopback ports."""
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


@contextmanager
def _client(distributed: Any, address: str, where: str | LocalCluster) -> Iterator[Client]:
    seconds = _ANSWER_S
    try:
        if isinstance(where, str):
            asyncio.run(asyncio.wait_for(_shake_hands(where), _ANSWER_S))
        seconds = _CONNECT_S
        client = distributed.Client(where, timeout=_CONNECT_S, set_as_default=True)
    except asyncio.TimeoutError as error:  # before OSError, its base class since Python 3.11
        raise DeviceError(
            f"no cluster answers at {address}: it accepts connections but sent nothing within {seconds} s",
            "is that a scheduler, and does it run?",
            code="cluster-silent",
        ) from error
    except TypeError as error:  # Dask's error without certificates
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
    """Handshake with a scheduler and disconnect, as Dask's client would wait forever for the answer."""
    from distributed.comm import connect
    from distributed.security import Security

    comm = await connect(address, timeout=_CONNECT_S, **Security().get_connection_args("client"))
    comm.abort()


def _await_workers(cluster: Cluster) -> None:
    """Wait for the first worker."""
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
    """Refuse a scheduler and workers without ckh, or with another version."""
    versions: dict[str, Any] = {}
    try:
        for address, version in cluster.client.run(own_version, on_error="return").items():
            versions[f"the worker {address}"] = version
        versions["the scheduler"] = cluster.client.run_on_scheduler(own_version)
    except LOST as error:
        raise gone(error) from error
    except Exception as error:  # noqa: BLE001 - whatever went wrong there
        versions["the scheduler"] = error
    for who, version in versions.items():
        if isinstance(version, Exception) and not isinstance(version, OSError):
            raise DeviceError(
                f"{who} cannot load ckh: {version}", "install the same ckh there", code="node-without-ckh"
            )
        if isinstance(version, str) and version != __version__:
            raise DeviceError(
                f"{who} has ckh {version}, this is {__version__}", "install the same", code="other-version"
            )
