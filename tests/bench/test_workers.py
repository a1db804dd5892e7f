"""Runs with several workers, kernels with identical code, and kernels with too much scratch memory."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ckh.bench.compilation.binary import Binary
from ckh.bench.compilation.compile import Built
from ckh.bench.devices import hip_device as hip_device_module
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.campaign import Campaign
from ckh.bench.supervision.driver import Driver, in_order
from ckh.bench.supervision.limits import BenchLimits
from ckh.bench.supervision.protocol import WorkerConfig
from ckh.bench.supervision.runner import within_scratch
from ckh.data.journal import KernelRecord, read_journal
from ckh.data.settings import Given
from ckh.errors import DeviceError
from ckh.hardware.gpus import Gpu
from ckh.schema import Resources, Status
from tests.bench.campaigns import Runs
from tests.bench.fake_hipcc import FakeHipcc, write_headers
from tests.bench.faults import CLAIMED_MS, FAULTS, GOOD, PROBLEM, SEGFAULT, Fault, FaultyDevice
from tests.bench.hip_stub import build as hip_stub
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


LIMITS = BenchLimits(timeout_s=120.0, jobs=2)
PROBLEMS = tuple(replace(PROBLEM, hi=size) for size in range(5, 11))
CANONICAL = {problem.hi: problem.canonical() for problem in PROBLEMS}
TAKES = Resources(32, 0, 16, 1024, 0, 0, 0, 8)


def meeting(folder: Path, workers: int) -> str:
    """Statements of a kernel that record process and problem in a folder, and wait for this many processes.

    Without waiting, one worker could finish everything before another has started.
    """
    note = f'snprintf(path, sizeof path, "{folder}/%d %d", int(getpid()), int(p->hi)); fclose(fopen(path, "w"));'
    count = f"system(\"test $(ls '{folder}' | cut -d' ' -f1 | sort -u | wc -l) -ge {workers}\")"
    wait = f"for (int i = 0; i < 600 && {count}; ++i) usleep(100000);"
    return f"char path[500]; {note} {wait}"


def meets(folder: Path, workers: int) -> Fault:
    """A right kernel that waits for other workers."""
    return Fault(run=f"{meeting(folder, workers)} {GOOD.run}")


class ManyWorkers(FaultyDevice):
    """Several workers, a limited number of which start; some kernels have identical code or use scratch memory."""

    def __init__(self, *faults: Fault, workers: int = 2) -> None:
        super().__init__(*faults)
        self.workers = workers
        self.starts_left = 1000
        self.refusal: Path | None = None  # exists once a worker was not started
        self.codes: dict[str, str] = {}
        self.scratch: dict[str, int] = {}
        self.calling: dict[str, int] = {}

    def worker_configs(self) -> tuple[WorkerConfig, ...]:
        return tuple(WorkerConfig(1 << 30, None) for _ in range(self.workers))

    def worker_command(self) -> list[str]:
        self.starts_left -= 1
        if self.starts_left >= 0:
            return super().worker_command()
        if self.refusal is not None:
            self.refusal.touch()
        return ["false"]

    def inspect(self, kernel: Any, source: str, messages: str, library: bytes) -> Binary | None:
        """By the kernel's name."""
        name = full_name(kernel)
        resources = replace(TAKES, scratch_bytes=self.scratch[name]) if name in self.scratch else None
        return Binary(self.codes.get(name, name), resources, self.calling.get(name))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The metadata of a library is specific to the device of one test.
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))


def make_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, faults: Sequence[Fault], workers: int = 2
) -> tuple[Runs, ManyWorkers]:
    """Make `Campaign` open such a device, on six problems."""
    device = ManyWorkers(*faults, workers=workers)
    return Runs(folder, device, monkeypatch, PROBLEMS, LIMITS), device


@pytest.mark.slow
def test_every_pair_is_measured_once_by_one_of_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both work, a problem is measured by one of them only, and failures of kernels are rows as usual."""
    met = tmp_path / "met"
    met.mkdir()
    faults = [meets(met, 2), meets(met, 2), FAULTS["zeros"][0], GOOD]
    runs, _ = make_runs(tmp_path, monkeypatch, faults)
    outcome = runs.run()
    assert outcome.pairs_left == 0
    assert outcome.totals.workers == 2
    assert outcome.totals.restarts == 0
    assert runs.first_pass == runs.all_pairs
    assert outcome.totals.statuses == {"ok": 18, "wrong_result": 6}
    assert 0 <= outcome.orchestration <= 1
    workers = defaultdict(set)
    for path in met.iterdir():
        pid, _, size = path.name.partition(" ")
        workers[int(size)].add(pid)
    assert set(workers) == set(CANONICAL)
    assert all(len(pids) == 1 for pids in workers.values())
    assert len(set().union(*workers.values())) == 2


@pytest.mark.slow
def test_a_worker_without_a_device_ends_the_run_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one worker cannot be restarted, the other stops too; all results are available for resuming."""
    met = tmp_path / "met"
    met.mkdir()
    # Both workers run the first kernel of a problem; the segfault of one then needs a third process.
    runs, device = make_runs(tmp_path, monkeypatch, [meets(met, 2), SEGFAULT, GOOD])
    device.starts_left = 2
    with expect_refusal(DeviceError, "worker-start", "1"):
        runs.run()
    kept = runs.first_pass
    assert 0 < kept.total() < runs.all_pairs.total()
    assert max(kept.values()) == 1
    assert {str(row.status) for row in runs.rows} <= {"ok", "crash"}
    assert read_journal(runs.out).ends == ()
    device.starts_left = 1000
    outcome = runs.run(resume=True)
    assert outcome.totals.statuses.total() == runs.all_pairs.total() - kept.total()
    assert outcome.pairs_left == 0
    assert runs.first_pass == runs.all_pairs
    assert {row.status for row in runs.of_kernel(1)} == {Status.CRASH}
    assert [end.reason for end in read_journal(runs.out).ends] == ["complete"]


@pytest.mark.slow
def test_equal_code_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel of three with identical code runs on a problem; the others have its times, and name it."""
    runs, device = make_runs(tmp_path, monkeypatch, [GOOD] * 4, workers=1)
    device.codes = dict.fromkeys(device.names[:3], "one code")
    outcome = runs.run()
    assert outcome.totals.statuses == {"ok": 24}
    assert runs.first_pass == runs.all_pairs
    for canonical in CANONICAL.values():
        rows = {row.kernel: row for row in runs.rows if row.problem == canonical and not row.remeasured}
        same = [rows[name] for name in device.names[:3]]
        (measured,) = (row for row in same if not row.message)
        twins = [row for row in same if row is not measured]
        (message,) = {row.message for row in twins}
        expect_values(message, measured.kernel)
        assert all(
            structs.replace(row, kernel="", message="", source_hash="")
            == structs.replace(measured, kernel="", message="", source_hash="")
            for row in twins
        )
        assert len({row.source_hash for row in same}) == 3
        assert rows[device.names[3]].message == ""
    journal = read_journal(runs.out)
    assert {record.code_hash for record in journal.kernels} == {"one code", device.names[3]}
    assert len(journal.kernels) == 4


@pytest.mark.slow
def test_a_failure_is_shared_by_kernels_of_equal_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong result is shared too, with the reason."""
    runs, device = make_runs(tmp_path, monkeypatch, [FAULTS["zeros"][0]] * 2, workers=1)
    device.codes = dict.fromkeys(device.names, "one code")
    assert runs.run().totals.statuses == {"wrong_result": 12}
    twins = [row for row in runs.rows if row.message.startswith("the same code as ")]
    assert len(twins) == 6
    assert all(", measured once: " in row.message and "outputs wrong" in row.message for row in twins)


@pytest.mark.parametrize(
    ("scratch_bytes", "limit", "is_run"),
    [(65, 64, False), (64, 64, True), (63, 64, True), (4, 0, False), (0, 0, True), (999, None, True), (None, 0, True)],
)
def test_the_limit_of_scratch_memory_is_inclusive(scratch_bytes: int | None, limit: int | None, is_run: bool) -> None:
    """A kernel above it is an invalid row with the size; 0 is a limit, and unknown sizes are measured."""
    resources = None if scratch_bytes is None else replace(TAKES, scratch_bytes=scratch_bytes)
    built = within_scratch(Built(Status.OK, "k.so", "hash", "", Binary("code", resources)), limit)
    assert built.status is (Status.OK if is_run else Status.INVALID)
    expect_values(built.message, *(() if is_run else (scratch_bytes, limit)))


class ServingWorkers(Driver):
    """Two workers that only have names."""

    configs: Any = (WorkerConfig(0, 0), WorkerConfig(0, 1))

    def __init__(self) -> None:
        super().__init__(FaultyDevice(), LIMITS, lambda: False, self.configs)

    @contextmanager
    def worker(self, config: Any = None, **_: Any) -> Iterator[Any]:
        yield SimpleNamespace(node=f"worker {config.cpu}")


def test_the_failure_of_one_worker_ends_the_work_of_the_other() -> None:
    """A working one finishes its current task and takes no other; the error is the failed one's."""
    both, failed, done = threading.Barrier(2, timeout=60), threading.Event(), list[str]()

    def work(worker: Any, task: int) -> None:
        both.wait()
        if worker.node == "worker 0":
            failed.set()
            raise DeviceError("no worker")
        failed.wait(60)
        time.sleep(0.1)  # for the failure to be recorded
        done.append(worker.node)

    with expect_refusal(DeviceError, "no-device"):
        ServingWorkers().serve(in_order(range(100)), work)
    assert done == ["worker 1"]


@pytest.mark.slow
def test_kernels_with_hidden_code_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that call functions, or have scratch memory without spills; the journal has the number of functions."""
    runs, device = make_runs(tmp_path, monkeypatch, [GOOD] * 4, workers=1)
    first, second, third, _ = device.names
    device.calling, device.scratch = {first: 2, second: 0, third: 0}, {second: 0, third: 4}
    runs.run()
    expect_values(capsys.readouterr().err, 2, 4, "calling_functions", "scratch_bytes")
    assert Counter(kernel.calling for kernel in read_journal(runs.out).kernels) == {2: 1, 0: 2, None: 1}


def test_a_resumed_run_keeps_the_limit_of_scratch_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a setting of the run."""
    runs, device = make_runs(tmp_path, monkeypatch, [GOOD] * 2, workers=1)
    device.scratch = dict.fromkeys(device.names, 8)
    device.starts_left = 0
    assert runs.run(max_scratch=4).totals.statuses == {"invalid": 12}
    shutil.move(runs.out / "journal.jsonl", tmp_path / "all")
    lines = (tmp_path / "all").read_bytes().splitlines(keepends=True)
    (runs.out / "journal.jsonl").write_bytes(b"".join(lines[:3]))
    runs.run(resume=True)
    assert {row.status for row in runs.rows} == {Status.INVALID}
    assert runs.first_pass == runs.all_pairs


@pytest.mark.slow
def test_the_journal_records_resources_of_each_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once per kernel, before its first row, under the hash that rows refer to."""
    runs, device = make_runs(tmp_path, monkeypatch, [GOOD] * 2, workers=1)
    device.scratch = {device.names[0]: 8}
    runs.run()
    journal = read_journal(runs.out)
    hashes = {number: runs.of_kernel(number)[0].source_hash for number in (0, 1)}
    run_id = journal.runs[0].run_id
    expected = [
        KernelRecord(run_id, hashes[0], device.names[0], replace(TAKES, scratch_bytes=8)),
        KernelRecord(run_id, hashes[1], device.names[1], None),
    ]
    assert sorted(journal.kernels, key=expected.index) == expected
    kinds = [line.partition(b",")[0] for line in (runs.out / "journal.jsonl").read_bytes().splitlines()]
    head = ["run", "plan", *["task"] * len(CANONICAL), "kernel", "kernel", "result"]
    assert kinds[: len(head)] == [f'{{"kind": "{kind}"'.encode() for kind in head]
    assert {row.latency_ms for row in runs.rows} == {CLAIMED_MS}


@pytest.mark.slow
def test_a_run_on_two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hip_library: Path) -> None:
    """The complete device `hip` except GPUs and compiler: kernels compiled, resources kept, each pair once."""
    monkeypatch.setattr(hip_device_module, "visible_gpus", lambda: tuple(Gpu(i, "gfx942", 304, 2100) for i in (0, 1)))
    monkeypatch.setenv("CKH_HIP_LIBRARY", str(hip_library))
    monkeypatch.setenv("CKH_STUB_GPUS", "2")
    source = Path(hip_stub.__file__).with_name("kernel.cpp")
    flags = " ".join(f"'{flag}'" for flag in hip_stub.StubKernel().flags)
    # The stub's kernel instead of the fake's output, with a unique number, so that no two are the same.
    gcc = f"exec g++ -std=c++17 -shared -fPIC -s {flags} '{source}' '{hip_library}' -o \"$library\" -x c++ - <<END"
    code = "extern \"C\" int ckh_number(void) { return $(echo $name | cksum | cut -c1-8 | tr -d ' '); }\nEND\n"
    hipcc = FakeHipcc(scratch=8).write(tmp_path / "bin/hipcc")
    script = hipcc.read_text(encoding="utf-8")
    hipcc.write_text(script[: script.index("exec gcc")] + f"{gcc}\n{code}", encoding="utf-8")
    problems = [replace(PROBLEM, hi=size, wi=size, c=16, k=16, g=2, dtype="fp16").canonical() for size in (4, 5, 6, 7)]
    (tmp_path / "problems.txt").write_text("\n".join(problems), encoding="utf-8")
    given = Given(
        problems=str(tmp_path / "problems.txt"),
        dtype="fp16",
        filter="pipeline == 'compv3' and tile_m == 16 and not split_image",
    )
    options = DeviceOptions(hipcc=str(hipcc), ck_include=str(write_headers(tmp_path / "include")), verify_on="host")
    campaign = Campaign("hip", given, tmp_path / "run", resume=False, options=options)
    outcome = campaign.run(LIMITS)
    assert (outcome.pairs_left, outcome.totals.workers) == (0, 2)
    journal = read_journal(tmp_path / "run")
    names = {row.kernel for row in journal.rows}
    pairs = Counter((row.problem, row.kernel) for row in journal.rows if not row.remeasured)
    assert pairs == Counter((problem, name) for problem in problems for name in names)
    unsupported = {name for name in names if "_dsb" in name}
    assert len(journal.kernels) == len(names - unsupported) == 2
    assert {row.kernel for row in journal.rows if row.status is Status.UNSUPPORTED} == unsupported
    assert {row.latency_ms for row in journal.rows if row.status is Status.OK} == {30.0}
    assert {kernel.resources.scratch_bytes for kernel in journal.kernels if kernel.resources} == {8}
    assert (journal.runs[0].device, journal.runs[0].device_kind) == ("gfx942, 304 CUs at 2100 MHz", "hip")
