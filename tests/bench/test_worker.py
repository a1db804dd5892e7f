"""The worker process: lines in, lines out, and its end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.supervision.process import WorkerDiedError, WorkerProcess
from ckh.bench.supervision.protocol import Job, Op, Reply, WorkerConfig, job_from_line, reply_from_line
from ckh.errors import DeviceError
from ckh.schema import Status
from tests.bench.faults import CLAIMED_MS, FAULTS, GOOD, PROBLEM, Fault, FaultyDevice, claims
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = WorkerConfig(0, None)
SETUP = Job(Op.PROBLEM, 1, problem=PROBLEM.canonical())
NO_GPU = Reply(-1, Status.LAUNCH_ERROR, "HIP finds no GPU", is_last=True)


class BrokenDevice(FaultyDevice):
    """Starts another command as a worker."""

    def __init__(self, *command: str) -> None:
        super().__init__()
        self._command = list(command)

    def worker_command(self) -> list[str]:
        """The given command."""
        return self._command


@pytest.fixture
def libraries(cache_folder: Path) -> list[str]:
    """Two right kernels of 100 and 50 ms and one that prints to stdout."""
    device = FaultyDevice(GOOD, claims(50.0), FAULTS["garbage on stdout"][0])
    built = KernelBuilder(device).build(device.kernels, 2, lambda _count, _text: None)
    return [built[kernel].library for kernel in device.kernels]


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    """A running worker."""
    process = WorkerProcess(FaultyDevice(), CONFIG)
    yield process
    process.kill()


def ask(worker: WorkerProcess, job: Job) -> Reply:
    """The reply to a job."""
    worker.send(job)
    return worker.receive(time.monotonic() + 20)


def test_a_kernel_is_measured_and_timed(worker: WorkerProcess, libraries: list[str]) -> None:
    """Samples and loops follow from the kernel's time, and replies come in the order of the jobs."""
    assert ask(worker, SETUP).status is Status.OK
    measured = ask(worker, Job(Op.MEASURE, 2, library=libraries[0], samples=4))
    assert (measured.id, measured.status, measured.loops) == (2, Status.OK, 1)
    assert measured.samples_ns == (CLAIMED_MS * 1e6,) * 4
    timed = ask(worker, Job(Op.TIME, 3, library=libraries[1], samples=3, loops=7))
    assert (timed.id, timed.samples_ns, timed.loops) == (3, (50e6,) * 3, 7)
    assert measured.seconds is not None
    assert {"load", "run", "verify", "time", "wait", "other"} <= set(measured.seconds)


def test_a_far_slower_kernel_gets_fewer_samples(worker: WorkerProcess, libraries: list[str]) -> None:
    """A kernel more than three times as slow as the best gets two samples, more than ten times one."""
    for best_ns, count in ((40e6, 5), (30e6, 2), (9e6, 1)):
        ask(worker, Job(Op.PROBLEM, 1, problem=PROBLEM.canonical(), best_ns=best_ns))
        assert len(ask(worker, Job(Op.MEASURE, 2, library=libraries[0], samples=5)).samples_ns) == count


@pytest.mark.slow
def test_a_single_pause_does_not_make_a_kernel_slow(worker: WorkerProcess, cache_folder: Path) -> None:
    """A pause in a kernel's first run is not its time; one that is as slow again is timed once, by the second run."""
    pauses = Fault(f"static int runs; if (!runs++) usleep(30000); {GOOD.run}", claims(1.0).time)
    crawls = Fault(f"usleep(30000); {GOOD.run}", claims(20.0).time)
    device = FaultyDevice(pauses, crawls)
    built = KernelBuilder(device).build(device.kernels, 1, lambda _count, _text: None)
    ask(worker, Job(Op.PROBLEM, 1, problem=PROBLEM.canonical(), best_ns=1e6))
    for kernel, samples in zip(device.kernels, ((1e6,) * 5, (20e6,)), strict=True):
        assert ask(worker, Job(Op.MEASURE, 2, library=built[kernel].library, samples=5)).samples_ns == samples


def test_kernel_output_is_not_a_reply(worker: WorkerProcess, libraries: list[str]) -> None:
    """Garbage that looks like replies goes to stderr, and the next job is answered."""
    ask(worker, SETUP)
    for number in (4, 5):
        reply = ask(worker, Job(Op.MEASURE, number, library=libraries[2], samples=1))
        assert (reply.id, reply.status) == (number, Status.OK)


def test_jobs_that_cannot_be_done_are_answered(worker: WorkerProcess, libraries: list[str]) -> None:
    """A kernel without a problem and a missing library are launch errors, and the worker continues."""
    early = ask(worker, Job(Op.MEASURE, 1, library=libraries[0], samples=1))
    assert early.status == Status.LAUNCH_ERROR
    assert "problem" in early.message
    ask(worker, SETUP)
    missing = ask(worker, Job(Op.MEASURE, 2, library="/nonexistent.so", samples=1))
    assert missing.status is Status.LAUNCH_ERROR
    expect_values(missing.message, "/nonexistent.so")
    assert ask(worker, Job(Op.MEASURE, 3, library=libraries[0], samples=1)).status is Status.OK


def test_a_worker_ends_when_its_input_does() -> None:
    """Without jobs it reports that it is ready, and ends with code 0."""
    device = FaultyDevice()
    command = [*device.worker_command(), CONFIG.to_json()]
    done = subprocess.run(
        command, input=b"", capture_output=True, env=device.worker_environment(), timeout=60, check=True
    )
    assert reply_from_line(done.stdout) == Reply(-1, Status.OK)
    assert done.stderr == b""


def test_a_library_is_loaded_without_a_problem(worker: WorkerProcess, libraries: list[str]) -> None:
    """The reply has the kernel's name if the library states it; these do not."""
    loaded = ask(worker, Job(Op.LOAD, 1, library=libraries[0]))
    assert (loaded.id, loaded.status, loaded.message) == (1, Status.OK, "")
    missing = ask(worker, Job(Op.LOAD, 2, library="/nonexistent.so"))
    assert missing.status is Status.LAUNCH_ERROR
    expect_values(missing.message, "/nonexistent.so")


def test_a_problem_of_another_dtype_is_an_answer(worker: WorkerProcess) -> None:
    """A problem that cannot be verified is not measured, and the worker continues."""
    reply = ask(worker, replace(SETUP, problem=replace(PROBLEM, dtype="int8").canonical()))
    assert reply.status == Status.LAUNCH_ERROR
    expect_values(reply.message, "int8")
    assert ask(worker, SETUP).status is Status.OK


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ("sh", "-c", "echo 'no such GPU' >&2; exit 3"),
            "the worker does not start: exited with code 3; stderr: no such GPU",
        ),
        (
            ("sh", "-c", f"echo '{NO_GPU.to_line().decode().strip()}'"),
            "no usable device: HIP finds no GPU",
        ),
        (("sh", "-c", "kill -9 $$"), "the worker does not start: killed by SIGKILL"),
        (("sh", "-c", "echo hello"), "the worker does not start: the worker answered nonsense: b'hello'"),
    ],
)
def test_a_worker_that_does_not_start_is_a_device_error(command: tuple[str, ...], message: str) -> None:
    """The error states how it ended, with the last line of its stderr."""
    with pytest.raises(DeviceError) as caught:
        WorkerProcess(BrokenDevice(*command), CONFIG)
    assert caught.value.message == message


def test_a_worker_killed_during_start_is_restarted(tmp_path: Path) -> None:
    """It is started twice more; the third start succeeds."""
    ready = Reply(-1, Status.OK).to_line().decode().strip()
    script = f"echo >> {tmp_path}/starts; test $(wc -l < {tmp_path}/starts) = 3 && echo '{ready}' && cat; kill -9 $$"
    WorkerProcess(BrokenDevice("sh", "-c", script), CONFIG).kill()
    assert (tmp_path / "starts").read_text(encoding="utf-8") == "\n" * 3


def test_a_worker_that_fails_on_its_own_is_not_restarted(tmp_path: Path) -> None:
    """Its exit code shows that a restart would fail too."""
    with expect_refusal(DeviceError, "worker-start", "3"):
        WorkerProcess(BrokenDevice("sh", "-c", f"echo >> {tmp_path}/starts; exit 3"), CONFIG)
    assert (tmp_path / "starts").read_text(encoding="utf-8") == "\n"


# Reply of a worker to a job, as a Python expression of the lines that it writes; `right` is the right reply.
LIES = {
    "another job": ("{**right, 'id': right['id'] ^ 1}", "to another job"),
    "the job's place in the plan": ("{**right, 'id': 5}", "to another job"),
    "twice": ("right, right", "more than once"),
    "more": ("right, 'x'", "more than once"),
    "too many times": ("{**right, 'samples_ns': [1.5] * 4}", "it has 4 times"),
    "no times": ("{**right, 'samples_ns': []}", "it has 0 times"),
    "times of a failure": ("{**right, 'status': 'crash'}", "it has 3 times"),
    "no loops": ("{**right, 'loops': 0}", "of 0 loops"),
    "a time of zero": ("{**right, 'samples_ns': [0.0]}", "nonsense"),
    "a negative time": ("{**right, 'samples_ns': [1.0, -1.0]}", "nonsense"),
    "an infinite time": ("{**right, 'samples_ns': [float('inf')]}", "nonsense"),
    "a time that is not a number": ("{**right, 'samples_ns': [float('nan')]}", "nonsense"),
    "a time out of all proportion": ("{**right, 'samples_ns': [1.7e308, 1.7e308]}", "nonsense"),
    "true as a time": ("{**right, 'samples_ns': [True]}", "nonsense"),
    "times as text": ("{**right, 'samples_ns': '123'}", "nonsense"),
    "a huge integer": ("{**right, 'loops': 10**5000}", "nonsense"),
    "an unknown status": ("{**right, 'status': 'fine'}", "nonsense"),
    "a list as a status": ("{**right, 'status': ['ok']}", "nonsense"),
    "a status that is none of its own": ("{**right, 'status': 'compile_error', 'samples_ns': []}", "nonsense"),
    "an endless message": ("{**right, 'message': 'a' * 3000}", "nonsense"),
    "a message that is none": ("{**right, 'message': None}", "nonsense"),
    "infinite seconds": ("{**right, 'seconds': {'run': float('inf')}}", "nonsense"),
    "seconds of what nobody knows": ("{**right, 'seconds': {'lunch': 1.0}}", "nonsense"),
    "a field too many": ("{**right, 'best': 1}", "nonsense"),
    "a field too few": ("{'id': 5}", "nonsense"),
    "a list": ("[right]", "nonsense"),
    "nothing": ("''", "nonsense"),
}
LIAR = """
import json, sys
ready = json.loads(sys.argv[1])
print(json.dumps(ready), flush=True)
sys.set_int_max_str_digits(0) if hasattr(sys, "set_int_max_str_digits") else None
for line in sys.stdin:
    job = json.loads(line)
    right = {**ready, "id": job["id"], "samples_ns": [1.5, 2.5, 3.5], "loops": 7, "seconds": {}}
    said = @lie@
    lines = [one if isinstance(one, str) else json.dumps(one) for one in (said if isinstance(said, tuple) else (said,))]
    sys.stdout.write("\\n".join(lines) + "\\n")
    sys.stdout.flush()
"""


def liar(lie: str) -> WorkerProcess:
    """A worker that answers a job in this way."""
    ready = Reply(-1, Status.OK).to_line().decode()
    return WorkerProcess(BrokenDevice(sys.executable, "-c", LIAR.replace("@lie@", lie), ready), CONFIG)


@pytest.mark.parametrize("name", LIES)
def test_an_impossible_reply_ends_the_worker(name: str) -> None:
    """The error states the fault of the reply, and the worker has ended."""
    lie, message = LIES[name]
    worker = liar(lie)
    worker.send(Job(Op.MEASURE, 5, samples=3))
    with pytest.raises(WorkerDiedError, match=message):
        worker.receive(time.monotonic() + 20)
    assert worker._process.poll() is not None


def test_their_number_is_documented() -> None:
    """docs/reliability.md states it."""
    page = (Path(__file__).parents[2] / "docs/reliability.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if Path(__file__).name in line)
    assert re.findall("[0-9]+", row)[0] == str(len(LIES))


def test_valid_replies_are_accepted() -> None:
    """At most as many times as requested when measured, exactly as many with the same loops when timed."""
    worker = liar("right")
    for job in (Job(Op.MEASURE, 5, samples=3), Job(Op.MEASURE, 6, samples=5), Job(Op.TIME, 7, samples=3, loops=7)):
        assert ask(worker, job).samples_ns == (1.5, 2.5, 3.5)
    worker.send(Job(Op.TIME, 8, samples=4, loops=7))
    with pytest.raises(WorkerDiedError, match="it has 3 times"):
        worker.receive(time.monotonic() + 20)


def test_jobs_and_replies_round_trip() -> None:
    """Both are one line of JSON and read back equal."""
    job = Job(Op.TIME, 7, "problem", 1.5, "/a b.so", 3, 9)
    assert job_from_line(job.to_line().decode()) == job
    reply = Reply(7, Status.WRONG_RESULT, 'a "quoted"\nline', (1.5, 2.5), 9, {"run": 0.5}, is_last=True)
    assert reply_from_line(reply.to_line()) == reply
    assert reply.to_line().count(b"\n") == 1
    assert json.loads(job.to_line())["op"] == "time"
