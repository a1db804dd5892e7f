"""Abandoned calls on a cluster, and nodes lost during compilation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.device_choice import HostDevice
from ckh.bench.planning import results as results_module
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision import reference_watch as alike_module
from ckh.bench.supervision import sweep as sweep_module
from ckh.bench.supervision.cluster_driver import ClusterDriver
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.remote import DeviceRequest
from ckh.cli import run
from ckh.cluster import calls as calls_module
from ckh.cluster.calls import Call, NodeLostError
from ckh.cluster.connection import connected
from ckh.cluster.on_dask import is_withdrawn
from ckh.data.journal import read_journal
from ckh.errors import DeviceError, ExitCode
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.clusters import shared_cluster
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from ckh.cluster.calls import Cluster

pytest.importorskip("distributed", reason="needs the extra 'cluster'")

_KERNELS = [full_name(kernel) for kernel in conv_pool(Direction.FORWARD, load_arch("host"))[:240:80]]
_LIMIT_S = 200  # timeout of calls that would take minutes, or never end


def _problem(n: int, c: int, size: int) -> str:
    return ConvProblem(Direction.FORWARD, n, c, k=c, g=1, hi=size, wi=size, y=3, x=3, pad_h=1, pad_w=1).canonical()


# Kills the node that it compiles for, if a file names its process, and once.
_COMPILER = """#!/bin/sh
case "$*" in *" -o "*)
  if mv "{folder}/node" "{folder}/killed" 2> /dev/null; then kill -9 "$(cat "{folder}/killed")"; fi
esac
exec g++ "$@" -O0
"""


@pytest.fixture(scope="module")
def one_node(local: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """A cluster of one node, and the folder of its compiler and its cache."""
    del local  # which would otherwise start later, and replace the key of new clients
    folder = tmp_path_factory.mktemp("alone")
    compiler = folder / "compiler"
    compiler.write_text(_COMPILER.format(folder=folder), encoding="utf-8")
    compiler.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", str(compiler))
        patch.setenv("CKH_CACHE_DIR", str(folder / "cache"))
        with shared_cluster(1) as cluster:
            patch.undo()
            yield cluster, folder


@pytest.fixture
def alone(one_node: tuple[Cluster, Path], monkeypatch: pytest.MonkeyPatch) -> tuple[Cluster, Path]:
    """The cluster of one node; clients have its compiler and its cache."""
    monkeypatch.setenv("CXX", str(one_node[1] / "compiler"))
    monkeypatch.setenv("CKH_CACHE_DIR", str(one_node[1] / "cache"))
    return one_node


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with kernels."""
    monkeypatch.chdir(tmp_path)
    Path("kernels").write_text("\n".join(_KERNELS), encoding="utf-8")


def _bench(cluster: Cluster, problem: str, *args: str) -> subprocess.Popen[bytes]:
    """A bench of a problem in a separate process."""
    Path("problems.txt").write_text(problem, encoding="utf-8")
    what = ["--device", "host", "--problems", "problems.txt", "--kernels", "kernels", "--samples", "3", *args]
    command = [sys.executable, "-m", "ckh", "bench", "--cluster", cluster.client.scheduler.address, *what]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _until(is_so: Any) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_work_of_a_stopped_client_does_not_delay_the_next(alone: tuple[Cluster, Path], number: signal.Signals) -> None:
    """A problem that would take minutes is abandoned when its client dies: the next client has the device."""
    cluster, _ = alone
    first = _bench(cluster, _problem(32, 2048, 28), "--timeout", "3600", "--out", "first")
    _until(lambda: any("run_jobs" in str(key) for keys in cluster.client.processing().values() for key in keys))
    first.send_signal(number)
    first.wait(_LIMIT_S)
    assert _bench(cluster, _problem(1, 8, 7), "--out", "second").wait(_LIMIT_S) == ExitCode.OK
    assert len(read_journal(Path("second")).final_rows()) == len(_KERNELS)


def _lose_node_once(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> Iterator[bool]:
    """Make a function find its node lost on its first call; the returned iterator is then empty."""
    lost, function = iter([True]), getattr(module, name)

    def lost_once(*args: Any) -> Any:
        if next(lost, False):
            raise NodeLostError("its worker was lost")
        return function(*args)

    monkeypatch.setattr(module, name, lost_once)
    return lost


def _run_on_one_node(cluster: Cluster) -> int:
    Path("problems.txt").write_text(_problem(1, 8, 7), encoding="utf-8")
    args = ["bench", "--device", "host", "--problems", "problems.txt", "--kernels", "kernels", "--samples", "3"]
    return run([*args, "--out", "run", "--cluster", cluster.client.scheduler.address])


@pytest.mark.slow
def test_results_of_a_returning_node_are_not_measured_again(
    alone: tuple[Cluster, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a node is lost between a problem's first times and those of its leaders, only these are measured."""
    monkeypatch.setattr(results_module, "LEADER_MARGIN", 1e9)
    _lose_node_once(monkeypatch, sweep_module, "time_in_rounds")
    assert _run_on_one_node(alone[0]) == ExitCode.OK
    rows = read_journal(Path("run")).rows
    assert sorted(row.kernel for row in rows if not row.remeasured) == sorted(_KERNELS)
    assert sum(row.remeasured for row in rows) == len(_KERNELS)


@pytest.mark.slow
def test_a_node_lost_during_comparison_does_not_end_the_run(
    alone: tuple[Cluster, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes part again when it returns."""
    lost = _lose_node_once(monkeypatch, alike_module, "measure")
    assert _run_on_one_node(alone[0]) == ExitCode.OK
    assert next(lost, None) is None
    assert len(read_journal(Path("run")).final_rows()) == len(_KERNELS)


@pytest.mark.slow
def test_a_node_lost_at_the_start_is_reported(local: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver knows its devices without contacting them; their tasks end with the reason."""
    device = HostDevice()
    with ClusterDriver(local, DeviceRequest("host", DeviceOptions()), device, BenchLimits(), lambda: False) as driver:
        monkeypatch.setattr(local, "nodes", lambda: ())
        assert driver.identity == device.identity()
        with expect_refusal(NodeLostError, "node-lost"), driver.worker() as runner:
            list(runner.run(None, []))


@pytest.mark.slow
def test_a_node_that_restarts_while_compiling_continues(alone: tuple[Cluster, Path]) -> None:
    """This also holds for the only node: its resources are registered again, else it would get nothing to compile."""
    cluster, folder = alone
    (pid,) = cluster.everywhere(os.getpid).values()
    for library in folder.rglob("cache/kernels/??/*.so"):
        library.unlink()
    bench = _bench(cluster, _problem(1, 8, 7), "--compile-only")
    (folder / "new").write_text(str(pid), encoding="utf-8")
    (folder / "new").rename(folder / "node")
    assert bench.wait(_LIMIT_S) == ExitCode.OK
    assert (folder / "killed").exists()
    assert list(cluster.everywhere(os.getpid).values()) != [pid]


@pytest.mark.slow
def test_calls_for_a_lost_worker_end(local: Cluster) -> None:
    """They are bound to it, so no other can run them: an error is raised instead of waiting."""
    node, pids = local.nodes()[0], local.everywhere(os.getpid)
    generator = local.results(Call(time.sleep, (number / 10,), on=node.address) for number in range(100))
    next(generator)
    os.kill(pids[node.address], signal.SIGKILL)
    with expect_refusal(NodeLostError, "node-lost"):
        list(generator)


@pytest.mark.slow
def test_a_cluster_without_workers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls for any worker wait as long as one may join."""
    from distributed import LocalCluster

    monkeypatch.setattr(calls_module, "_ALONE_S", 1)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as made,
        connected(made.scheduler_address) as cluster,
    ):
        generator = cluster.results(Call(time.sleep, (0.2 + number / 1000,)) for number in range(100))
        next(generator)
        made.scale(0)
        with expect_refusal(DeviceError, "no-nodes"):
            list(generator)


@pytest.mark.slow
def test_a_call_knows_when_its_client_is_gone(local: Cluster, tmp_path: Path) -> None:
    """It is False as long as a client waits; Dask itself lets the call run on."""
    began, ended = tmp_path / "began", tmp_path / "ended"
    where = local.nodes()[0].address
    assert local.result(Call(is_withdrawn, (), on=where)) is False
    assert local.result(Call(_run_until_withdrawn, (str(began), str(ended)), on=where), began.exists) is None
    _until(ended.exists)


def _run_until_withdrawn(began: str, ended: str) -> None:
    Path(began).touch()
    while not is_withdrawn():
        time.sleep(0.05)
    Path(ended).touch()
