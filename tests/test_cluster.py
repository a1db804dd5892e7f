"""Calls on a real Dask cluster of local worker processes: results, errors, and dying workers and schedulers."""

from __future__ import annotations

import operator
import os
import re
import signal
import sys
import threading
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.cluster import calls as calls_module
from ckh.cluster.calls import Call, ClusterNode, gone, in_order
from ckh.cluster.connection import connected
from ckh.data import parts as parts_module
from ckh.data.dataset import write_dataset
from ckh.errors import DeviceError, ExitCode, UsageError
from ckh.ops import operation
from tests.learn.conftest import measured
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.cluster.calls import Cluster

pytest.importorskip("distributed", reason="needs the extra 'cluster'")


@pytest.mark.slow
def test_every_call_returns_its_result(local: Cluster) -> None:
    """Every call returns its result, once."""
    outcome = {call.args: result for call, result in local.results(Call(pow, (base, 2)) for base in range(100))}
    assert outcome == {(base, 2): base**2 for base in range(100)}


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
def test_a_call_waits_for_the_result_of_another_client(local: Cluster, tmp_path: Path) -> None:
    """Each name needed by two clients is computed once: the second client joins the call of the first."""
    slow = Call(_write_slowly, (str(tmp_path / "runs"), "ab"), key="first")
    with connected(local.client.scheduler.address) as other:
        assert local.claim(["a", "b"], "first") == {}
        calls = local.results([slow])
        waiting = threading.Thread(target=lambda: outcome.append(next(calls)[1]))
        outcome: list[str] = []
        waiting.start()
        assert other.claim(["b", "c"], "second") == {"b": "first"}
        joined = [result for _, result in other.results([Call(_write_slowly, (), key="first", joins=True)])]
        waiting.join()
        assert outcome == joined == ["ab"]
        assert (tmp_path / "runs").read_text(encoding="utf-8") == "ab"
        list(calls)
        deadline = time.monotonic() + 20
        while local.client.run_on_scheduler(_has_call, "first") and time.monotonic() < deadline:
            time.sleep(0.1)
        assert other.claim(["a", "b"], "third") == {}


def _has_call(key: str, dask_scheduler: Any) -> bool:
    return key in dask_scheduler.tasks


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
    with connected("local:2") as cluster, expect_refusal(DeviceError, "workers-died"), cluster.spreading():
        list(in_order(signal.raise_signal, [(signal.SIGKILL,)]))


def test_what_cannot_be_resumed_says_so(local: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and evaluation write nothing before they end; runs of `bench` are resumed."""
    monkeypatch.setattr(local, "nodes", _lost)
    for context, has_resume in ((nullcontext(), True), (local.spreading(), False)):
        with expect_refusal(DeviceError, "cluster-lost") as caught, context:
            list(local.results([Call(operator.neg, (1,))]))
        assert ("--resume" in caught.value.hint) == has_resume


def _lost() -> tuple[ClusterNode, ...]:
    raise gone("closed")


def test_results_are_in_the_order_of_their_arguments(local: Cluster) -> None:
    """The later calls end first, and none runs in this process."""
    arguments = [(number, pause) for number, pause in enumerate([0.4, 0.2, 0.1, 0.0])]
    here = [number for number, _ in in_order(_number_and_process, arguments)]
    with local.spreading():
        far = list(in_order(_number_and_process, arguments))
    assert here == [number for number, _ in far] == [0, 1, 2, 3]
    assert os.getpid() not in {process for _, process in far}


def _number_and_process(number: int, pause: float) -> tuple[int, int]:
    time.sleep(pause)
    return number, os.getpid()


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


@pytest.mark.slow
@pytest.mark.parametrize("among", ["candidates", "measured"])
def test_evaluation_on_a_cluster_gives_the_same_figures(
    among: str, local: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts scored by workers, with a model that only the client has, give the report of a single process."""
    monkeypatch.setattr(parts_module, "PART_ROWS", 40)
    rows = measured()
    write_dataset(rows, tmp_path / "measured.parquet")
    train = ["train", "--data", str(tmp_path / "measured.parquet"), "--trees", "20", "--leaves", "7", "--folds", "0"]
    assert run([*train, "--jobs", "1", "--out", str(tmp_path / "model")]) == ExitCode.OK
    args = ["evaluate", "--model", str(tmp_path / "model"), "--data", str(tmp_path / "measured.parquet")]
    args += ["--with-trained", "--max-unstable", "1", "--json", "--among", among]
    capsys.readouterr()
    assert run(args) == ExitCode.OK
    here = capsys.readouterr().out
    assert run([*args, "--cluster", local.client.scheduler.address]) == ExitCode.OK
    assert capsys.readouterr().out == here
    assert sum(local.everywhere(_has_scored).values()) > 0


def _has_scored() -> bool:
    return "ckh.learn.judging.judged_answers" in sys.modules
