"""Connecting to a Dask cluster: unusable addresses, schedulers and workers, and their errors."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing.spawn
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from ckh.cluster import connection as connection_module
from ckh.cluster.calls import Call
from ckh.cluster.connection import connected
from ckh.errors import CkhError, DeviceError, ExitCode, UsageError
from tests.planted import plant, ran
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.cluster.calls import Cluster

pytest.importorskip("distributed", reason="needs the extra 'cluster'")


@pytest.mark.slow
def test_a_scheduler_that_dies_is_one_error(tmp_path: Path) -> None:
    """Anyone waiting for results gets an error that the cluster is gone, with a hint to continue."""
    with (
        _scheduler(tmp_path, "--no-dashboard") as (file, scheduler),
        _started("distributed.cli.dask_worker", "--scheduler-file", file, "--no-dashboard"),
        connected(file) as cluster,
    ):
        results = cluster.results(Call(time.sleep, (0.1 + i * 1e-6,)) for i in range(1000))
        next(results)
        scheduler.kill()
        with expect_refusal(DeviceError, "cluster-lost") as caught:
            list(results)
        assert "--resume" in caught.value.hint


@contextmanager
def _started(module: str, *args: str, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A Dask process; `before` runs in it first."""
    code = f"{before}\nimport runpy\nrunpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    with subprocess.Popen([sys.executable, "-c", code, *args], stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _scheduler(folder: Path, *args: str, before: str = "") -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler, and its scheduler file."""
    file = folder / "scheduler.json"
    where = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file))
    with _started("distributed.cli.dask_scheduler", *where, *args, before=before) as process:
        for _ in range(600):
            if file.is_file() and file.stat().st_size:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the scheduler does not start")
        yield str(file), process


_NO_BOKEH = "import sys; sys.modules['bokeh'] = None"  # not installed
_NO_CKH = "import sys; sys.modules['ckh'] = None"


@pytest.mark.slow
@pytest.mark.parametrize("args", [["--no-dashboard"], []])
def test_a_missing_dashboard_is_not_linked(tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    """With --no-dashboard, or without Bokeh, the scheduler's pages answer 404, or state what is missing."""
    with (
        _scheduler(tmp_path, *args, before="" if args else _NO_BOKEH) as (file, _),
        _started("distributed.cli.dask_worker", "--scheduler-file", file, "--no-dashboard"),
        connected(file) as cluster,
    ):
        assert cluster.client.scheduler_info()["services"]["dashboard"]
    assert len(capsys.readouterr().err.splitlines()) <= 2


@pytest.mark.slow
def test_the_dashboard_is_linked(local: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """The link leads to Dask's page."""
    pytest.importorskip("bokeh", reason="needs the extra 'cluster'")
    with connected(local.client.scheduler.address):
        said = capsys.readouterr().err
    link = said.partition(", dashboard ")[2].strip()
    assert urlsplit(link).hostname == "127.0.0.1"
    with urlopen(link) as page:  # noqa: S310 - of this machine
        assert b"bokeh" in page.read().lower()


@pytest.mark.slow
def test_workers_without_ckh_are_refused(tmp_path: Path) -> None:
    """A worker, and a scheduler, with a Python without ckh are named in one line."""
    worker = ("distributed.cli.dask_worker", "--no-dashboard", "--no-nanny", "--scheduler-file")
    with (
        _scheduler(tmp_path, before=_NO_CKH) as (file, _),
        _started(*worker, file),
        expect_refusal(DeviceError, "node-without-ckh") as caught,
        connected(file),
    ):
        pass
    assert "\n" not in caught.value.message
    Path(file).unlink()
    with (
        _scheduler(tmp_path) as (file, _),
        _started(*worker, file, before=_NO_CKH),
        expect_refusal(DeviceError, "node-without-ckh", "tcp://"),
        connected(file),
    ):
        pass


@pytest.mark.slow
def test_a_cluster_without_workers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a time in which one might join; a note states that it waits."""
    monkeypatch.setattr(connection_module, "_WORKER_S", 0.5)
    with (
        _scheduler(tmp_path) as (file, _),
        expect_refusal(DeviceError, "no-nodes") as caught,
        connected(file),
    ):
        pass
    assert "dask worker" in caught.value.hint
    expect_values(capsys.readouterr().err, "cluster tcp://")


@pytest.mark.parametrize(
    "address", ["local:", "local:0", "local:-1", "local:x", "local:99999999999", "nowhere", "http://127.0.0.1:1"]
)
def test_an_invalid_address_is_refused(address: str) -> None:
    """It is one error, and nothing is started."""
    with pytest.raises(UsageError, match="--cluster"), connected(address):
        pass


def test_no_scheduler_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that does not answer is not a usable device."""
    monkeypatch.setattr(connection_module, "_CONNECT_S", 0.5)
    with expect_refusal(DeviceError, "no-cluster"), connected("tcp://127.0.0.1:9"):
        pass


def test_a_silent_scheduler_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a peer that accepts a connection but never answers, as a stopped scheduler, ends with one line."""
    monkeypatch.setattr(connection_module, "_ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with expect_refusal(DeviceError, "cluster-silent", "0.5") as caught, connected(address):
            pass
    assert "\n" not in caught.value.message


def test_a_scheduler_that_stops_after_its_greeting_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that only shakes hands is given up too; the error states the waiting time."""
    monkeypatch.setattr(connection_module, "_CONNECT_S", 1.5)
    with (
        _greeting_only() as address,
        expect_refusal(DeviceError, "cluster-silent", "1.5"),
        connected(address),
    ):
        pass


@contextmanager
def _greeting_only() -> Iterator[str]:
    """Address of a peer that accepts connections like a scheduler, and sends nothing more."""
    from distributed.comm import listen

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def listening() -> Any:
        return await listen("tcp://127.0.0.1:0", lambda _: asyncio.sleep(60))

    listener = asyncio.run_coroutine_threadsafe(listening(), loop).result()
    try:
        yield listener.contact_address
    finally:
        loop.call_soon_threadsafe(listener.stop)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@pytest.mark.parametrize("text", ["{}", "[]", "{", ""])
def test_an_invalid_scheduler_file_is_refused(tmp_path: Path, text: str) -> None:
    """The file is named."""
    file = tmp_path / "scheduler.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CkhError, match=r"scheduler\.json"), connected(str(file)):
        pass


@pytest.mark.slow
def test_connections_without_a_certificate_are_refused(tmp_path: Path) -> None:
    """A scheduler with TLS accepts clients with a certificate of its authority; others are refused in one line."""
    import dask
    from distributed import LocalCluster
    from distributed.security import Security

    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    mine, other = _certificate(tmp_path / "mine"), _certificate(tmp_path / "other")
    with LocalCluster(
        n_workers=1,
        host="tls://127.0.0.1",
        dashboard_address="127.0.0.1:0",
        security=Security(require_encryption=True, **mine),
    ) as made:
        address = made.scheduler_address
        assert address.startswith("tls://")
        with dask.config.set(_as_configured(mine)), connected(address) as cluster:
            assert [result for _, result in cluster.results([Call(pow, (2, 3))])] == [8]
        for where in (address, address.replace("tls://", "tcp://")):
            with pytest.raises(DeviceError) as caught, connected(where):
                pass
            assert "\n" not in caught.value.message
            assert where in caught.value.message
        with dask.config.set(_as_configured(other)):
            with pytest.raises(DeviceError, match="certificate") as caught, connected(address):
                pass
            assert "\n" not in caught.value.message


def _certificate(folder: Path) -> dict[str, str]:
    """A self-signed certificate, as the arguments of Dask's `Security`."""
    folder.mkdir()
    pair, key = str(folder / "cert.pem"), str(folder / "key.pem")
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=ckh"]
    subprocess.run([*new, "-keyout", key, "-out", pair], check=True, capture_output=True)
    result = {"tls_ca_file": pair}
    for who in ("scheduler", "worker", "client"):
        result |= {f"tls_{who}_cert": pair, f"tls_{who}_key": key}
    return result


def _as_configured(certificate: dict[str, str]) -> dict[str, Any]:
    """Dask's configuration for a client with a certificate."""
    keys = {"ca-file": "tls_ca_file", "client.cert": "tls_client_cert", "client.key": "tls_client_key"}
    return {f"distributed.comm.tls.{key}": certificate[name] for key, name in keys.items()}


_STRANGER = """
import os, sys
import distributed, distributed.comm.tcp, distributed.protocol, distributed.widgets

if sys.argv[2:]:
    os.setuid(65534)
try:
    print(distributed.Client(sys.argv[1], timeout=10).submit(os.getpid).result())
except (OSError, TypeError, ValueError) as error:
    print("refused", type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["tls", "tcp"])
def test_local_workers_reject_clients_without_their_key(local: Cluster, protocol: str) -> None:
    """A process that knows the port of the scheduler cannot run anything.

    It is another user's process if tests run as root, and other users can load what they run.
    """
    distributed = pytest.importorskip("distributed")
    address = local.client.scheduler.address.replace("tls:", f"{protocol}:")
    other_user = ["as another user"] if os.getuid() == 0 and _can_all_read(Path(distributed.__file__)) else []
    command = [sys.executable, "-c", _STRANGER, address, *other_user]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd="/", env=_no_key())
    assert ended.stdout.startswith("refused ")
    assert {urlsplit(node.address).scheme for node in local.nodes()} == {"tls"}


def _can_all_read(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in path.parents)


def _no_key() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}


def test_local_workers_require_the_cryptography_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package for certificates nothing is started, and the hint names it."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(UsageError, match="cryptography") as caught, connected("local:1"):
        pass
    assert "ckh[cluster]" in caught.value.hint


_INTERRUPTED = """
import os, signal, sys
from ckh.boundary import guarded
from ckh.cluster.connection import connected

def wait():
    with connected("local:1"):
        os.killpg(0, signal.SIGINT)
        signal.pause()

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which background jobs of a shell ignore
    sys.exit(guarded(wait))
"""


@pytest.mark.slow
def test_an_interrupted_client_leaves_no_folder(tmp_path: Path) -> None:
    """Dask's files of local workers are removed after Ctrl-C, which all processes receive."""
    script, folder = tmp_path / "interrupted.py", tmp_path / "temporary"
    script.write_text(_INTERRUPTED, encoding="utf-8")
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    ended = subprocess.run(
        [sys.executable, script], env=environment, cwd=tmp_path, start_new_session=True, timeout=120, check=False
    )
    assert ended.returncode == ExitCode.INTERRUPTED
    assert sorted(path.name for path in tmp_path.iterdir()) == ["interrupted.py", "temporary"]
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_local_workers_do_not_import_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiprocessing starts them with `python -c`; afterwards it starts processes as usual."""
    plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    usual = multiprocessing.spawn.get_executable()
    with connected("local:1"):
        assert multiprocessing.spawn.get_executable() != usual
    assert ran(tmp_path) == []
    assert multiprocessing.spawn.get_executable() == usual


@pytest.mark.slow
def test_another_ckh_is_refused(local: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers with another version are named."""
    monkeypatch.setattr(connection_module, "__version__", "0.0.1")
    with expect_refusal(DeviceError, "other-version", "0.0.1"), connected(local.client.scheduler.address):
        pass


@pytest.mark.slow
def test_dask_prints_nothing(local: Cluster) -> None:
    """Connection events are reported by ckh in one line: Dask's own loggers are quiet."""
    with connected(local.client.scheduler.address):
        names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
        assert "distributed.client" in names
        assert not any(logging.getLogger(name).isEnabledFor(logging.ERROR) for name in names)
