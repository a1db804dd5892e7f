"""Calls on a real Dask cluster of local worker processes: results, errors, and dying workers and schedulers."""

from __future__ import annotations

import operator
import os
import re
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cluster import calls as calls_module
from ckh.cluster.calls import Call, ClusterNode, gone
from ckh.cluster.connection import connected
from ckh.errors import DeviceError, UsageError
from ckh.ops import operation
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.cluster.calls import Cluster

distributed = pytest.importorskip("distributed", reason="needs the extra 'cluster'")


@pytest.mark.slow
def test_every_call_returns_its_result(local: Cluster) -> None:
    """Every call returns its result, once."""
    outcome = {call.args: result for call, result in local.results(Call(pow, (base, 2)) for base in range(100))}
    assert outcome == {(base, 2): base**2 for base in range(100)}


@pytest.mark.slow
def test_a_failed_call_raises_its_error_in_the_client(local: Cluster) -> None:
    """An error of ckh is the same error on the client, with its hint."""
    with expect_refusal(UsageError, "unknown-op") as caught:
        list(local.results([Call(operation, ("nothing",))]))
    assert caught.value.hint


def test_a_call_runs_on_the_requested_worker(local: Cluster) -> None:
    """Calls bound to one worker run in its process."""
    pids = local.everywhere(os.getpid)
    node = local.nodes()[1]
    results = {result for _, result in local.results(Call(os.getpid, (), on=node.address) for _ in range(5))}
    assert results == {pids[node.address]}


@pytest.mark.slow
def test_present_workers_are_never_reported_missing(local: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often Dask's own timer queries the cluster, every query finds all workers."""
    import dask

    monkeypatch.setattr(calls_module, "_LOOK_S", 0.0)
    with (
        dask.config.set({"distributed.client.scheduler-info-interval": "2ms"}),
        connected(local.client.scheduler.address) as other,
    ):
        assert {len(other.nodes()) for _ in range(2000)} == {3}


def test_calls_with_the_same_key_run_once(local: Cluster) -> None:
    """Two calls with the same key have one result: the same moment."""
    moments = [result for _, result in local.results(Call(time.time_ns, (), key="moment") for _ in range(4))]
    assert len(moments) == 4
    assert len(set(moments)) == 1


@pytest.mark.slow
def test_two_clients_with_the_same_key_share_a_call(local: Cluster, tmp_path: Path) -> None:
    """A call that two clients submit runs once, and both have its result."""
    slow = Call(_write_slowly, (str(tmp_path / "runs"), "ab"), key="shared")
    with connected(local.client.scheduler.address) as other:
        outcome: list[str] = []
        waiting = threading.Thread(target=lambda: outcome.append(local.result(slow)))
        waiting.start()
        assert other.result(slow) == "ab"
        waiting.join()
    assert outcome == ["ab"]
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "ab"


def _write_slowly(path: str, text: str) -> str:
    """Leave a mark of each run."""
    time.sleep(1.0)
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(text)
    return text


def test_only_the_needed_calls_are_submitted(local: Cluster) -> None:
    """Calls are submitted when workers are about to need them, and not after a stop."""
    made: list[int] = []

    def calls() -> Iterator[Call]:
        for number in range(1000):
            made.append(number)
            yield Call(operator.neg, (number,))

    taken: list[int] = []
    for _, result in local.results(calls(), lambda: len(taken) >= 5):
        taken.append(result)
    assert len(taken) == 5
    assert len(made) <= 5 + 2 * 3


@pytest.mark.slow
def test_no_call_is_lost_when_a_worker_dies(local: Cluster) -> None:
    """A call whose worker is killed runs again on another."""
    pids = set(local.everywhere(os.getpid).values())
    result = []
    for number, (call, _) in enumerate(local.results(Call(time.sleep, (0.05 + i * 1e-6,)) for i in range(60))):
        result.append(call.args)
        if number == 5:
            os.kill(next(iter(pids)), signal.SIGKILL)
    assert sorted(result) == [(0.05 + i * 1e-6,) for i in range(60)]


@pytest.mark.slow
def test_a_call_that_kills_every_worker_is_an_error() -> None:
    """It is not retried forever."""
    with connected("local:2") as cluster, expect_refusal(DeviceError, "workers-died"):
        cluster.result(Call(signal.raise_signal, (signal.SIGKILL,)))


@pytest.mark.slow
def test_an_unstarted_worker_is_no_error_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask asserts that the worker it waits for was started, which one that is just started anew was not."""
    close = distributed.LocalCluster.close

    def fails(self: Any, timeout: float | None = None) -> None:
        close(self, timeout)
        raise AssertionError

    monkeypatch.setattr(distributed.LocalCluster, "close", fails)
    with connected("local:1") as cluster:
        assert cluster.result(Call(operator.neg, (1,))) == -1


@pytest.mark.slow
def test_a_lost_cluster_can_be_resumed(local: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint names the option that continues a run."""
    monkeypatch.setattr(local, "nodes", _lost)
    with expect_refusal(DeviceError, "cluster-lost") as caught:
        list(local.results([Call(operator.neg, (1,))]))
    assert "--resume" in caught.value.hint


def _lost() -> tuple[ClusterNode, ...]:
    raise gone("closed")


@pytest.mark.slow
def test_the_job_script_for_slurm_can_be_built() -> None:
    """The example of docs/cluster.md makes a job script that starts a worker with all GPUs of a node."""
    jobqueue = pytest.importorskip("dask_jobqueue", reason="needs the extra 'cluster'")
    text = (Path(__file__).parents[1] / "docs" / "cluster.md").read_text(encoding="utf-8")
    example = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "SLURMCluster" in block)
    arguments = example[example.index("SLURMCluster(") : example.index("\n)") + 2]
    kind = partial(jobqueue.SLURMCluster, scheduler_options={"dashboard_address": "127.0.0.1:0"})
    with eval(arguments, {"SLURMCluster": kind}) as made:  # noqa: S307 - our own page
        script = made.job_script()
    for expected in ("#SBATCH --gpus-per-node=8", "#SBATCH -t 04:00:00", "--nthreads 8", "export CK_TILE_INCLUDE="):
        assert expected in script
