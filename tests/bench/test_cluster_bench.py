"""A bench on a real Dask cluster of two local processes: rows as of a local run, shipped kernels, refused nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.device_choice import HostDevice
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision import reference_watch as alike_module
from ckh.bench.supervision import remote
from ckh.bench.supervision.cluster_driver import ClusterDriver
from ckh.bench.supervision.driver import in_order
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.reference_watch import Alike, Reference
from ckh.bench.supervision.remote import DeviceRequest, describe
from ckh.bench.supervision.runner import on_problem
from ckh.cli import run
from ckh.data.journal import read_journal
from ckh.errors import DeviceError, ExitCode
from ckh.hardware.machine import machine_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.clusters import shared_cluster
from tests.refusals import expect_error, expect_warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.cluster.calls import Cluster

pytestmark = pytest.mark.slow

pytest.importorskip("distributed", reason="needs the extra 'cluster'")

PROBLEMS = [
    ConvProblem(Direction.FORWARD, n=1, c=8, k=8, g=1, hi=size, wi=size, y=3, x=3, pad_h=1, pad_w=1).canonical()
    for size in (7, 8, 9, 10, 11)
]
KERNELS = [full_name(kernel) for kernel in conv_pool(Direction.FORWARD, load_arch("host"))[:240:80]]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes with a cache other than the client's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CKH_CACHE_DIR", str(tmp_path_factory.mktemp("nodes")))
        with shared_cluster(2) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client's cache."""
    return tmp_path_factory.mktemp("client")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with problems and kernels; devices of a busy machine may differ arbitrarily."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CKH_CACHE_DIR", str(cache))
    monkeypatch.setitem(alike_module.DEVICE_RATIO, "host", 100.0)
    Path("problems.txt").write_text("\n".join(PROBLEMS), encoding="utf-8")
    Path("kernels").write_text("\n".join(KERNELS), encoding="utf-8")


def bench(out: str, *args: str, cluster: Cluster | None) -> int:
    """The exit code of a bench of all pairs."""
    where = [] if cluster is None else ["--cluster", cluster.client.scheduler.address]
    what = ["--problems", "problems.txt", "--kernels", "kernels", "--samples", "3"]
    return run(["bench", "--device", "host", "--out", out, *where, *(args or what)])


def test_a_cluster_gives_the_rows_of_a_local_run(nodes: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """The same pairs, right; every row names its node, and all kernels of a problem have the same one."""
    assert bench("far", cluster=nodes) == ExitCode.OK
    assert bench("near", cluster=None) == ExitCode.OK
    far, near = (read_journal(Path(name)).final_rows() for name in ("far", "near"))
    assert sorted((row.problem, row.kernel) for row in far) == sorted((row.problem, row.kernel) for row in near)
    assert all(row.latency_ms for row in far)
    of_problem = {problem: {row.node for row in far if row.problem == problem} for problem in PROBLEMS}
    assert all(len(names) == 1 for names in of_problem.values())
    assert all("/host" in name for names in of_problem.values() for name in names)
    assert {row.node for row in near} == {""}
    assert "2 devices" in capsys.readouterr().err


# A client that dies by kill -9 after a row in the middle of a problem.
_DYING = """
import os, signal, sys
from ckh.bench.supervision import reference_watch
from ckh.cli import run
from ckh.data.journal import JournalWriter

reference_watch.DEVICE_RATIO["host"] = 100.0
add, left = JournalWriter.add, [int(sys.argv[1])]

def add_and_die(self, *rows):
    add(self, *rows)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

JournalWriter.add = add_and_die
run(sys.argv[2:])
"""


@pytest.fixture(scope="module")
def killed(nodes: Cluster, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run whose client was killed after the first row of a problem."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "problems.txt").write_text("\n".join(PROBLEMS), encoding="utf-8")
    (folder / "kernels").write_text("\n".join(KERNELS), encoding="utf-8")
    what = ["--problems", "problems.txt", "--kernels", "kernels", "--samples", "3"]
    args = ["bench", "--device", "host", "--out", "run", "--cluster", nodes.client.scheduler.address, *what]
    command, environment = [sys.executable, "-c", _DYING, "1", *args], {**os.environ, "CKH_CACHE_DIR": str(cache)}
    ended = subprocess.run(command, stderr=subprocess.DEVNULL, timeout=300, check=False, cwd=folder, env=environment)
    assert ended.returncode == -signal.SIGKILL
    return folder / "run"


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_half_measured_problem_continues_on_its_device(nodes: Cluster, killed: Path, *, is_lost: bool) -> None:
    """The rest is measured by the same device, and nothing twice.

    If that is lost, another device measures all of it; the first row remains in the journal, and does not count.
    """
    shutil.copytree(killed, "run")
    journal = Path("run/journal.jsonl")
    (first,) = read_journal(journal).rows
    if is_lost:
        journal.write_text(journal.read_text(encoding="utf-8").replace(f'"{first.node}"', '"gone/host0"'), "utf-8")
    assert bench("run", "--resume", cluster=nodes) == ExitCode.OK
    rows = [row for row in read_journal(journal).rows if row.problem == first.problem and not row.remeasured]
    final = [row for row in read_journal(journal).final_rows() if row.problem == first.problem]
    assert sorted(row.kernel for row in final) == sorted(KERNELS)
    assert len(rows) == len(KERNELS) + is_lost
    assert [row.node for row in rows].count("gone/host0") == is_lost
    (device,) = {row.node for row in rows} - {"gone/host0"}
    assert is_lost or device == first.node


def test_devices_of_earlier_runs_are_compared(nodes: Cluster, killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run continues only with devices about as fast as those in its journal, here or on a cluster."""
    shutil.copytree(killed, "run")
    looks = read_journal(Path("run")).references
    assert len({look.node for look in looks}) == len(looks) == 2
    journal = Path("run") / "journal.jsonl"
    before = journal.read_text(encoding="utf-8")
    slow = re.sub(r'"latency_ms": ([0-9.e-]+), "ratio"', r'"latency_ms": 1e6, "ratio"', before)
    journal.write_text(slow, encoding="utf-8")
    for cluster in (nodes, None):
        assert bench("run", "--resume", cluster=cluster) == ExitCode.NO_DEVICE
        said = capsys.readouterr().err
        expect_error(said, "nodes-differ", "/host")
    assert len(read_journal(Path("run")).rows) == 1
    journal.write_text(before, encoding="utf-8")
    assert bench("run", "--resume", cluster=None) == ExitCode.OK
    assert "3 devices differ by" in capsys.readouterr().err


def test_kernels_can_be_compiled_only(nodes: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes compile, this machine loads the results, and nothing is measured."""
    args = ["--problems", "problems.txt", "--kernels", "kernels", "--compile-only", "--json"]
    assert bench("none", *args, cluster=nodes) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["statuses"] == {"ok": len(KERNELS)}
    assert not Path("none").exists()


def test_kernels_in_the_cache_of_either_side_are_not_recompiled(
    nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with an empty cache copies them from the nodes, and sends them to nodes that lack them."""
    assert bench("first", cluster=nodes) == ExitCode.OK
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "another"))
    try:
        nodes.everywhere(_forbid_compilers)
        assert bench("second", cluster=nodes) == ExitCode.OK
        assert len(list(KernelCache().folder.glob("??/*.so"))) == len(KERNELS)
        assert sum(nodes.everywhere(_empty_cache).values()) >= len(KERNELS)
        assert bench("third", cluster=nodes) == ExitCode.OK
    finally:
        nodes.everywhere(_allow_compilers)
    assert all(row.latency_ms for out in ("second", "third") for row in read_journal(Path(out)).final_rows())


def _forbid_compilers() -> None:
    from ckh.bench.compilation import compile as module

    module.run_compiler, module.was = None, module.run_compiler  # type: ignore[assignment,attr-defined]


def _allow_compilers() -> None:
    from ckh.bench.compilation import compile as module

    module.run_compiler = module.was  # type: ignore[attr-defined]


def _empty_cache() -> int:
    from ckh.bench.compilation.kernel_cache import KernelCache as Cache

    result = list(Cache().folder.glob("??/*.so"))
    for path in result:
        path.unlink(missing_ok=True)
    return len(result)


def _fails(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> str:
    """Error of a bench that does not begin."""
    assert bench("run", cluster=cluster) == ExitCode.NO_DEVICE
    said = capsys.readouterr().err
    assert not Path("run").exists()
    return next(line for line in said.splitlines() if line.startswith("error: "))


def test_nodes_with_another_toolchain_are_refused(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are named, and nothing is written."""
    from ckh.bench.devices.device_choice import HostDevice

    monkeypatch.setattr(HostDevice, "cache_salt", lambda _: b"another")
    said = _fails(nodes, capsys)
    expect_error(said, "nodes-differ", "compil")
    assert said.count("g++") == 2 or said.count("clang") == 2


@pytest.mark.parametrize(("changed", "said"), [({"max_clock_mhz": 1}, ""), ({"num_cus": 7}, r"\): num_cus \d+ and 7")])
def test_devices_of_another_kind_are_refused(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch, changed: dict[str, int], said: str
) -> None:
    """The difference is reported; a clock, which a CPU may report as its current value, is none."""
    everywhere = nodes.everywhere

    def with_another(function: Any, *args: Any, **named: Any) -> dict[str, Any]:
        result = everywhere(function, *args, **named)
        if function is describe:
            last = list(result)[-1]
            identity = result[last].identity
            result[last] = replace(result[last], identity=replace(identity, hardware={**identity.hardware, **changed}))
        return result

    monkeypatch.setattr(nodes, "everywhere", with_another)
    make = partial(ClusterDriver, nodes, DeviceRequest("host", DeviceOptions()), HostDevice(), BenchLimits())
    if not said:
        assert len(make(lambda: False).names) == 2
        return
    with pytest.raises(DeviceError, match=said):
        make(lambda: False)


def test_a_shared_gpu_of_a_node_is_a_warning_of_the_run(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The node tests its GPUs before measuring, and the run's output names the node; not for compiling only."""
    everywhere = nodes.everywhere
    monkeypatch.setattr(remote, "shared_gpus", lambda _device: "other processes have memory on GPU 3")

    def here(function: Any, *args: Any, **named: Any) -> dict[str, Any]:
        result = everywhere(function, *args, **named)
        if function is not describe:
            return result
        return {address: describe(*args, measures=named["measures"]) for address in result}

    monkeypatch.setattr(nodes, "everywhere", here)
    request = DeviceRequest("host", DeviceOptions())
    for measures in (False, True):
        ClusterDriver(nodes, request, HostDevice(), BenchLimits(), lambda: False, measures=measures)
        said = capsys.readouterr().err
        assert said.count("[shared-gpu]") == 2 * measures
    for node in nodes.nodes():
        expect_warning(said, "shared-gpu", node.address, machine_name(), "GPU 3")


def test_different_devices_are_not_mixed(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device that is too slow ends the run, with both names."""
    monkeypatch.setitem(alike_module.DEVICE_RATIO, "host", 0.5)
    assert bench("run", cluster=nodes) == ExitCode.NO_DEVICE
    said = capsys.readouterr().err
    expect_error(said, "nodes-differ", "/host")
    assert said.count("/host") == 2
    assert read_journal(Path("run")).rows == ()


def test_a_different_device_that_joins_later_is_excluded(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device that joins during a run is compared with the others before it measures."""
    monkeypatch.setitem(alike_module.DEVICE_RATIO, "host", 1e6)
    request = DeviceRequest("host", DeviceOptions())
    driver = ClusterDriver(nodes, request, HostDevice(), BenchLimits(), lambda: False)
    with driver:
        built = list(driver.build(conv_pool(Direction.FORWARD, load_arch("host"))[:1]).values())
        first, second = (device.name for device in driver.devices())
        times: dict[str, float] = {}
        alike = Alike("host", Reference(on_problem(PROBLEMS[0]), built[0], {}, times.__setitem__))
        driver.require_alike(alike)
        assert set(times) == set(alike.times) == {first, second}
        del alike.times[second]
        alike.times[first] = 1e-9
        seen: list[str] = []
        driver.serve(in_order(range(6)), lambda runner, _: seen.append(runner.node))
    assert seen == [first] * 6
    assert f"{second} is left out" in capsys.readouterr().err


def test_matrices_of_kernels_are_tried_by_nodes(nodes: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Every case has the same finding as on this machine, in the same order."""
    args = ["validate", "kernels", "--matrix", "pipelines", "--variant", "forward", "--ndim", "2", "--device", "host"]
    assert run([*args, "--json"]) == ExitCode.OK
    here = json.loads(capsys.readouterr().out)["findings"]
    assert run([*args, "--json", "--cluster", nodes.client.scheduler.address]) == ExitCode.OK
    far = json.loads(capsys.readouterr().out)["findings"]
    steady = {"ok", "unstable"}  # the same kernel may be either
    assert [(item["case"], item["built"], item["executed"]) for item in far] == [
        (item["case"], item["built"], item["executed"]) for item in here
    ]
    assert all(
        a["status"] == b["status"] or {a["status"], b["status"]} <= steady for a, b in zip(far, here, strict=True)
    )
    assert sum(item["executed"] for item in far) > 0


SEARCHED = ConvProblem(Direction.FORWARD, n=1, c=8, k=8, g=1, hi=7, wi=7, y=3, x=3, pad_h=1, pad_w=1).canonical()


def test_a_search_measures_on_one_device_of_a_cluster(nodes: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """All nodes compile, one device times all kernels of the problem, and is named in the journal."""
    args = ["search", "measure", SEARCHED, "--arch", "host"]
    effort = ["--evaluations", "3", "--top", "2", "--out", "found", "--json"]
    assert run([*args, *effort, "--cluster", nodes.client.scheduler.address]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)
    rows = read_journal(Path("found")).rows
    assert len([row for row in rows if not row.remeasured]) == 3
    assert any(row.remeasured for row in rows)
    assert len({row.node for row in rows}) == 1
    assert "/host" in rows[0].node
