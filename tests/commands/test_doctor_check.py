"""`ckh doctor --check`: end-to-end on each kind of device, and an archive without secrets."""

from __future__ import annotations

import json
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import HIP_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.supervision import checkup
from ckh.bench.supervision.checkup import CheckedClass, Checkup, ClassResult, checked
from ckh.cli import run
from ckh.commands.doctor.check import Anonymizer, print_check
from ckh.errors import ExitCode
from ckh.ops import operation
from tests.bench.fake_hipcc import write_headers
from tests.bench.hip_stub.build import build_runtime
from tests.real import Real, compiles, set_kernel_cache
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.bench.devices.device import Device

USER, HOST = "jdoe", "node17"
STEPS = ["device", "toolchain", "kernels", "run-1", "run-2", "comparison", "classes"]
ALL_CLASSES = checkup._classes
STUB_MS = 30.0  # as stated in tests/bench/hip_stub/kernel.cpp
HIP_STUB = Path(__file__).parents[1] / "bench/hip_stub"
# A fake hipcc: any kernel is the stub's, with the name in the source.
HIPCC = f"""#!/bin/sh
[ "$1" = --version ] && echo 'HIP version: 7.0' && echo 'clang version 21.0.0' && exit 0
for word; do [ "$before" = -o ] && library=$word; before=$word; done
[ $(grep -c '"ckh-kernel:' "$word") = 1 ] || {{ echo 'error: more than one kernel' >&2; exit 1; }}
grep -q 48x64x64 "$word" && echo "$word:3:1: error: no member named 'Run'" >&2 && exit 1
before='@before@'; grep -q 96x64x64 "$word" && before='return 0'
exec g++ -std=c++17 -O0 -shared -fPIC -DELEMENT=fp16 "-DBEFORE=$before" -DAFTER= -DSKIP=false -DWORKSPACE=0 \
    -o "$library" {HIP_STUB}/kernel.cpp @runtime@
"""
EMULATED = [
    f"grouped_conv_fwd_fp16_nhwgc_2d_{pipeline}_cshuffle_intrawave_16x64x64_1x4x1_16x16x16{more}"
    for pipeline, more in (("compv3", ""), ("compv4", "_dsb"), ("mem", ""))
]


@dataclass(frozen=True)
class Checked:
    """The exit code, the printed document, and the texts of the archive by name."""

    code: int
    document: dict[str, Any]
    files: dict[str, str]

    def steps(self) -> list[tuple[str, bool]]:
        """Names of the steps, and whether each is ok."""
        return [(step["name"], step["ok"]) for step in self.document["steps"]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with the cache in it, of a user on a machine whose names are secrets."""
    home = tmp_path / "homes" / USER
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", USER)
    monkeypatch.setenv("HOSTNAME", f"{HOST}.example.org")
    monkeypatch.setenv("CKH_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("CKH_SECRET", "hunter2")
    monkeypatch.chdir(tmp_path)
    (home / "cache").mkdir(mode=0o700)
    monkeypatch.setattr(checkup, "_classes", lambda _device: iter(()))
    return home


def class_of(tile_m: int, result: ClassResult = ClassResult.NOT_TRIED) -> tuple[CheckedClass, Any]:
    """A class of one kernel, which the compiler above refuses for a tile of 48, and makes wrong for one of 96."""
    name = EMULATED[0].replace("16x64x64", f"{tile_m}x64x64")
    message = "no such pipeline" if result is ClassResult.NOT_EMITTED else ""
    kernel = operation("grouped_conv").kernels.parse(name)
    return CheckedClass("grouped_conv", f"tile {tile_m}", name, result, message), kernel


def set_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four classes, of which the headers have no source of the last."""

    def classes(_device: object) -> Iterator[tuple[CheckedClass, Any]]:
        yield from map(class_of, (48, 96, 64))
        yield class_of(32, ClassResult.NOT_EMITTED)

    monkeypatch.setattr(checkup, "_classes", classes)


def check(options: Sequence[str], capsys: pytest.CaptureFixture[str]) -> Checked:
    """Run the check, and read its output."""
    code = run(["doctor", "--check", *options, "--json", "--out", "check.tar.gz"])
    with tarfile.open("check.tar.gz") as archive:
        members = archive.getmembers()
        assert {(member.uid, member.uname, member.gname, member.mtime) for member in members} == {(0, "", "", 0)}
        files = {}
        for member in members:
            content = archive.extractfile(member)
            assert content is not None
            files[member.name] = content.read().decode()
    return Checked(code, json.loads(capsys.readouterr().out), files)


def require_no_secrets(files: dict[str, str], home: Path) -> None:
    """Check that an archive does not name the user, the machine, the home folder or the environment."""
    text = "".join(files.values())
    for secret in (USER, HOST, str(home), "hunter2", os.uname().nodename):
        assert not re.search(rf"(?i)\b{re.escape(secret)}\b", text), secret


def stub_with(folder: Path, monkeypatch: pytest.MonkeyPatch, before: str = "") -> None:
    """Set up a HIP runtime without a GPU, a compiler whose kernels run on it, and a small problem to time."""
    runtime = build_runtime(folder)
    hipcc = folder / "hipcc"
    hipcc.write_text(HIPCC.replace("@runtime@", str(runtime)).replace("@before@", before), encoding="utf-8")
    hipcc.chmod(0o755)
    monkeypatch.setenv("HIPCC", str(hipcc))
    monkeypatch.setenv("CK_TILE_INCLUDE", str(write_headers(folder / "include")))
    monkeypatch.setenv("CKH_HIP_LIBRARY", str(runtime))
    monkeypatch.setitem(checkup.LARGE, HIP_KIND, {"n": 2, "c": 64, "k": 64, "g": 2, "hi": 8, "wi": 8})


@pytest.mark.slow
def test_a_gpu_is_checked_from_the_compiler_to_the_clock(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the HIP stub all steps are ok, three kernels have the stub's time twice on two problems, nothing leaks."""
    stub_with(home, monkeypatch)
    found = check(["--device", "hip", "--arch", "gfx942"], capsys)
    assert found.steps() == [(step, True) for step in STEPS]
    assert found.code == ExitCode.OK
    pairs = found.document["pairs"]
    assert len({pair["kernel"] for pair in pairs}) == 3
    assert len({pair["problem"] for pair in pairs}) == 2
    assert [(pair["statuses"], pair["times_ms"], pair["ratio"]) for pair in pairs] == [
        (["ok", "ok"], [STUB_MS, STUB_MS], 1.0)
    ] * 6
    assert len(found.document["sensors"]) == 4
    assert list(found.files) == ["check.json", "doctor.json", "run-1/journal.jsonl", "run-2/journal.jsonl"]
    rows = [json.loads(line) for line in found.files["run-2/journal.jsonl"].splitlines()]
    assert sum(row.get("latency_ms") == STUB_MS for row in rows) >= 6
    require_no_secrets(found.files, home)
    assert "~/hipcc" in found.files["doctor.json"]


@pytest.mark.slow
def test_a_gpu_that_computes_wrongly_fails_the_check(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No kernel is right: exit code 5, the first run is the failed step, and the archive has its rows."""
    stub_with(home, monkeypatch, before="return 0")
    found = check(["--device", "hip", "--arch", "gfx942"], capsys)
    assert found.code == ExitCode.NO_KERNEL
    assert found.steps() == [(step, step != "run-1") for step in [*STEPS[:4], "classes"]]
    assert {tuple(pair["statuses"]) for pair in found.document["pairs"]} == {("wrong_result",)}
    assert list(found.files) == ["check.json", "doctor.json", "run-1/journal.jsonl"]
    require_no_secrets(found.files, home)


@pytest.mark.slow
def test_the_archive_reports_a_missing_gpu(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3 with the remedy, only classes are compiled, and the archive is written nevertheless."""
    stub_with(home, monkeypatch)
    monkeypatch.setenv("CKH_STUB_GPUS", "0")
    set_classes(monkeypatch)
    found = check(["--device", "hip", "--arch", "gfx942"], capsys)
    assert found.code == ExitCode.NO_DEVICE
    assert found.steps() == [("device", False), ("classes", False)]
    assert found.document["steps"][0]["remedy"]
    assert list(found.files) == ["check.json", "doctor.json"]
    require_no_secrets(found.files, home)
    assert found.document["operations"] == {
        "grouped_conv": {"not emitted": 1, "not tried": 0, "not compiled": 1, "compiled": 2, "right": 0, "wrong": 0}
    }
    monkeypatch.setenv("HIPCC", "/none")
    monkeypatch.setenv("CK_TILE_INCLUDE", "/none")
    assert run(["doctor", "--check", "--device", "hip", "--arch", "gfx942", "--json"]) == ExitCode.NO_DEVICE
    document = json.loads(capsys.readouterr().out)
    assert [(step["name"], step["exit_code"]) for step in document["steps"]] == [("device", 3), ("classes", 3)]
    assert (document["build"], document["classes"]) == (None, [])


@pytest.mark.slow
def test_kernel_classes_are_compiled_and_executed(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each class has its result with the error, build and headers are named, and a wrong one fails the check."""
    stub_with(home, monkeypatch)
    set_classes(monkeypatch)
    for seconds, code, results in (
        (0.0, ExitCode.OK, ["not tried: "] * 3),
        (120.0, ExitCode.GATE_FAILED, ["not compiled: no member named 'Run'", "wrong: ", "right: "]),
    ):
        monkeypatch.setattr(checkup, "CLASSES_S", seconds)
        checks = Checkup(HIP_KIND, DeviceOptions("gfx942"), home)
        checks.steps.append(checked("device", lambda: "a worker"))
        checks.steps.append(checked("classes", checks._try_classes))
        assert checks.exit_code == code
        for of_class, wanted in zip(checks.classes, [*results, "not emitted: no such pipeline"], strict=True):
            result, _, message = wanted.partition(": ")
            assert of_class.result == result
            assert of_class.message.endswith(message), of_class
    assert checks.build is not None
    assert (checks.build.compiler, "-O3" in checks.build.options) == ("HIP version: 7.0; clang version 21.0.0", True)
    assert checks.counts()["grouped_conv"] == {
        "not emitted": 1,
        "not tried": 0,
        "not compiled": 1,
        "compiled": 0,
        "right": 1,
        "wrong": 1,
    }
    print_check(checks, Path("a.tar.gz"))
    printed = capsys.readouterr().out
    expect_values(printed, "grouped_conv", 1, 0, 1, 0, 1, 1, "tile 48", "not compiled", "tile 96", "wrong")


@pytest.mark.slow
def test_every_class_has_a_kernel_with_a_source_where_there_is_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same order each time, from each operation in turn; for the others, `emit` refuses every kernel."""
    stub_with(home, monkeypatch)
    monkeypatch.setattr(checkup, "operation_names", lambda: ("grouped_conv", "gemm_preshuffle"))
    device = open_device(HIP_KIND, DeviceOptions("gfx942"))
    classes, again = ([*ALL_CLASSES(device)] for _ in range(2))
    assert [kernel for _, kernel in classes] == [kernel for _, kernel in again]
    assert [of_class.op for of_class, _ in classes[:4]] == ["grouped_conv", "gemm_preshuffle"] * 2
    for op in ("grouped_conv", "gemm_preshuffle"):
        trials = measured_of(operation(op)).trials
        assert trials is not None
        every = trials().representatives(device.arch)
        found = {of_class.kernel_class: (of_class, kernel) for of_class, kernel in classes if of_class.op == op}
        assert found.keys() == every.keys()
        for name, (of_class, kernel) in found.items():
            sources = [emits(device, other) for other in (every[name][:5] if of_class.message else [kernel])]
            assert sources == [of_class.result is ClassResult.NOT_TRIED] * len(sources), name
            assert bool(of_class.message) is (of_class.result is ClassResult.NOT_EMITTED)


def emits(device: Device, kernel: Any) -> bool:
    """True if there is a source of a kernel for a device."""
    try:
        return bool(device.emit(kernel))
    except UnsupportedKernelError:
        return False


def test_a_second_check_replaces_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its archive of the default name, and no other file of that name."""
    monkeypatch.setattr(checkup.Checkup, "run", lambda _self: None)
    monkeypatch.setattr(checkup, "check_tools", lambda _options: [])
    command, archive = ["doctor", "--check", "--device", "host"], Path("ckh-check-host.tar.gz")
    assert [run(command), run(command)] == [ExitCode.OK, ExitCode.OK]
    archive.write_bytes(b"other")
    assert run(command) == ExitCode.USAGE
    assert archive.read_bytes() == b"other"


@pytest.mark.slow
def test_the_cpu_is_checked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three kernels are right on two problems in both runs; the stability of times depends on the machine."""
    found = check(["--device", "host"], capsys)
    assert [name for name, _ in found.steps()] == STEPS[:6]
    assert found.steps()[:5] == [(step, True) for step in STEPS[:5]]
    assert found.code in (ExitCode.OK, ExitCode.GATE_FAILED)
    assert found.document["ok"] is (found.code == ExitCode.OK)
    assert len(found.document["pairs"]) == 6
    assert {status for pair in found.document["pairs"] for status in pair["statuses"]} <= {"ok", "unstable"}
    require_no_secrets(found.files, home)
    assert run(["doctor", "--check", "--device", "host", "--out", "check.tar.gz"]) == ExitCode.USAGE
    Path("other.tar.gz").write_bytes(b"other")
    assert run(["doctor", "--check", "--device", "host", "--out", "other.tar.gz", "--force"]) == ExitCode.USAGE
    assert Path("other.tar.gz").read_bytes() == b"other"


@pytest.mark.slow
@compiles(*(("gfx942", "grouped_conv", name) for name in EMULATED))
def test_an_emulated_gpu_is_checked(
    real_kernels: Real, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real kernels are compiled, and right in both runs; there are no times."""
    assert all(real_kernels["gfx942", operation("grouped_conv").kernels.parse(name)].library for name in EMULATED)
    set_kernel_cache(monkeypatch)
    found = check(["--device", "emulated", "--arch", "gfx942"], capsys)
    assert (found.code, found.steps()) == (ExitCode.OK, [(step, True) for step in STEPS])
    assert sorted(pair["kernel"] for pair in found.document["pairs"]) == sorted(EMULATED)
    assert {tuple(pair["statuses"]) for pair in found.document["pairs"]} == {("verified", "verified")}
    assert {tuple(pair["times_ms"]) for pair in found.document["pairs"]} == {(None, None)}


def test_check_options_require_check() -> None:
    """Without --check they would have no effect."""
    for options in (["--device", "host"], ["--out", "a.tar.gz"], ["--force"]):
        assert run(["doctor", *options]) == ExitCode.USAGE
    assert run(["doctor", "--check", "--device", "abacus"]) == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/data/jdoe/rocm", "/data/USER/rocm"),
        ("JDOE@node17.example.org:node17", "USER@HOST:HOST"),
        ("/home/other/ck and /home/else", "~/ck and ~"),
        ("jdoes node175", "jdoes node175"),
        ("gfx942, root", "gfx942, root"),
    ],
)
def test_names_are_replaced_as_whole_words(text: str, wanted: str) -> None:
    """User, host and anyone's home folders, as whole words; longer words that contain a name are unchanged."""
    names = Anonymizer({"USER": USER, "HOSTNAME": f"{HOST}.example.org"})
    assert names.text(text) == wanted
    assert names.value({"a": [text, 1, None], "b": {"c": text}}) == {"a": [wanted, 1, None], "b": {"c": wanted}}
