"""Kernels of the record are compiled and executed on the emulated GPU, on problems that reach every end of their loops.

Needs a HIP compiler and CK Tile's headers. Of each operation, architecture, direction and pipeline the class with most
options is executed, of those the first in fp16, and of these a quarter that the commit chooses (`tests.real.sampled`);
CKH_TEST_CLASSES=all executes all classes.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.executed_kernels import record_text
from ckh.bench.codegen.ck_tile import Interface, template_dir
from ckh.bench.compilation.hip_toolchain import OPTIONS
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import EMULATED_KIND, DeviceIdentity, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.devices.hip_device import HipDevice
from ckh.bench.supervision import harness
from ckh.bench.supervision.harness import (
    RECORD,
    Build,
    Executed,
    execute,
    executed_classes,
    executed_of,
    loop_ends,
    source_hash,
)
from ckh.bench.supervision.supervisor import Supervisor, SupervisorOptions
from ckh.ops import built_in_names, operation
from ckh.schema import Status
from tests.real import Real, compiles, interface_here, sampled, set_kernel_cache

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.base import Kernel

_TIMEOUT_S = 600.0
VERIFIED = [record for record in executed_classes() if record.status == Status.VERIFIED]


def kind(executed: Executed) -> tuple[str, str, str, str]:
    """Operation, architecture, direction if there is one, and pipeline of a class."""
    kernel: Any = operation(executed.op).kernels.parse(executed.kernel)
    return executed.op, executed.arch, str(getattr(kernel, "variant", "")), str(kernel.pipeline)


def sample(result: list[Executed]) -> list[Executed]:
    """One class for each operation, architecture, direction and pipeline."""
    chosen: dict[tuple[str, ...], Executed] = {}
    for item in sorted(
        result, key=lambda record: (-record.kernel_class.count(","), "fp16" not in record.kernel_class, record)
    ):
        chosen.setdefault(kind(item), item)
    return sorted(chosen.values())


HERE = [record for record in VERIFIED if record.build.interface == interface_here()]
EACH = [
    pytest.param(
        record,
        marks=compiles((record.arch, record.op, record.kernel)),
        id=f"{record.arch} {record.op} {record.kernel_class}",
    )
    for record in (HERE if os.environ.get("CKH_TEST_CLASSES") == "all" else sampled(sample(HERE)))
]
# Of gfx942, without records. Waves of the first two race between tiles without ckh's barrier, since the default
# epilogue does not meet at one; the others have options of which the sample has one.
_UNPADDED = "cshuffle_intrawave_False_False_False_False"
FURTHER = (
    "gemm_grouped_fp16_rcr_compv3_default_intrawave_False_False_False_True_64x64x32_2x2x1_32x32x16",
    "gemm_streamk_reduction_1_fp16_rcr_compv3_default_intrawave_False_False_False_True_32x32x32_2x2x1_16x16x32",
    f"gemm_multi_d_mul_1_fp16_rcr_compv3_{_UNPADDED}_32x32x32_2x2x1_16x16x32",
    f"gemm_multi_d_add_gelu_1_fp16_rcr_compv3_{_UNPADDED}_32x32x32_2x2x1_16x16x32",
    f"gemm_preshuffle_permute_n_fp16_rcr_preshufflev2_{_UNPADDED}_64x64x64_2x2x1_16x16x32",
    "gemm_preshuffle_fp8_rcr_preshufflev2_default_intrawave_False_False_False_True_128x64x64_2x2x1_32x32x16",
)


def operation_of_name(name: str) -> str:
    """The operation of a kernel's name."""
    return next(op for op in built_in_names() if name.startswith(f"{op}_"))


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch) -> None:
    set_kernel_cache(monkeypatch)


def verified_problems(arch: str, op: str, name: str, real_kernels: Real) -> int:
    """Execute a kernel on its problems: the number of right ones, of which the others are refused."""
    device, kernel = open_device(EMULATED_KIND, DeviceOptions(arch)), operation(op).kernels.parse(name)
    built = real_kernels[arch, kernel]
    assert built.status is Status.OK, built.message
    options = SupervisorOptions(_TIMEOUT_S, device.worker_configs()[0])
    with Supervisor(device, options, lambda: False) as supervisor:
        replies = dict(execute(supervisor, built.library, loop_ends(device, kernel)))
    accepted = {Status.VERIFIED, Status.UNSUPPORTED}
    wrong = {problem.canonical(): reply.message for problem, reply in replies.items() if reply.status not in accepted}
    assert wrong == {}
    return sum(reply.status is Status.VERIFIED for reply in replies.values())


@pytest.mark.slow
@pytest.mark.parametrize("executed", EACH)
def test_kernels_of_the_record(executed: Executed, real_kernels: Real) -> None:
    """The kernel is right on every problem."""
    assert verified_problems(executed.arch, executed.op, executed.kernel, real_kernels) == executed.problems


@pytest.mark.slow
@pytest.mark.skipif(interface_here() is not Interface.LATE_2025, reason="the headers are not of late 2025")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=compiles(("gfx942", operation_of_name(name), name))) for name in sampled(FURTHER)]
)
def test_kernels_without_records(name: str, real_kernels: Real) -> None:
    """The kernel is right on every problem too."""
    assert verified_problems("gfx942", operation_of_name(name), name, real_kernels) > 4


def test_the_sample() -> None:
    """It has every pipeline of each operation and direction on each architecture once, and kernels with options."""
    chosen = sample(VERIFIED)
    kinds = [kind(item) for item in chosen]
    assert len(set(kinds)) == len(kinds)
    assert {("grouped_conv", "gfx942", "bwd_weight", "mem"), ("gemm_universal", "gfx942", "", "compv6")} <= set(kinds)
    assert set(kinds) == {kind(item) for item in VERIFIED}
    assert sum("," in record.kernel_class for record in chosen) > len(chosen) // 3


def test_the_record_names_its_kernels() -> None:
    """Each kernel of the record parses, belongs to its class, and occurs once."""
    result = executed_classes()
    assert len({(record.op, record.arch, record.kernel_class) for record in result}) == len(result)
    for record in result:
        op = operation(record.op)
        trials = measured_of(op).trials
        assert trials is not None
        assert trials().kernel_class(op.kernels.parse(record.kernel)) == record.kernel_class
        assert record.status in set(Status)
        assert (record.status == Status.VERIFIED) is (not record.reason)
    assert record_text(list(result)) == record_text(sorted(result)) == RECORD.read_text(encoding="utf-8")


def test_the_record_names_options_and_sources() -> None:
    """An entry with a source has a build with options, and each build is stated once."""
    builds = json.loads(RECORD.read_text(encoding="utf-8"))["builds"]
    assert {name: Build(**fields).name for name, fields in builds.items()} == {name: name for name in builds}
    assert {record.build.name for record in executed_classes()} == set(builds)
    assert all(bool(record.source) is bool(record.build.options) for record in executed_classes())


def test_never_executed_classes_are_reported() -> None:
    """A kernel of a recorded class was executed on its architecture, and on no other."""
    record = VERIFIED[0]
    kernel = operation(record.op).kernels.parse(record.kernel)
    assert executed_of(kernel, record.arch) == record
    assert executed_of(kernel, "gfx908") is None


class _Headers(HipDevice):
    """A device whose sources and options are stated, without a compiler."""

    text, interface, options = "int tile_m = 64;  // of a wave\n", "late2025", OPTIONS

    def emit(self, kernel: Kernel) -> str:
        return self.text + str(kernel)

    def identity(self) -> DeviceIdentity:
        compiler = f"HIP version: 7; clang 21; CK Tile {self.interface} 0123; flags 4567"
        return DeviceIdentity("hip", "gfx942", "", 0, {}, compiler, (*self.options, "--offload-arch=gfx942"))


def test_other_options_or_sources_are_an_older_binary() -> None:
    """Comments and spaces are no difference; with other headers only options are compared."""
    device = _Headers(DeviceOptions("gfx942"))
    kernel = operation(VERIFIED[0].op).kernels.parse(VERIFIED[0].kernel)
    now = replace(VERIFIED[0], build=Build.of(device), source=source_hash(device, kernel))
    assert now.build == Build("late2025", "HIP version: 7; clang 21", " ".join(OPTIONS))
    assert not now.is_older(device)
    assert replace(VERIFIED[0], build=Build("late2025"), source="").is_older(device)
    assert replace(now, build=replace(now.build, options=" ".join(OPTIONS[1:]))).is_older(device)
    assert not replace(now, build=replace(now.build, options=" ".join((*OPTIONS, "-DMACRO=1")))).is_older(device)
    device.text = "int  tile_m=64;\n"
    assert not now.is_older(device)
    device.text = "int tile_m = 128;\n"
    assert now.is_older(device)
    device.interface = "mid2025"
    assert not now.is_older(device)


def test_a_header_is_part_of_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A constant of a header of ckh's changes the hash, a comment does not."""
    device, kernel = _Headers(DeviceOptions("gfx942")), operation(VERIFIED[0].op).kernels.parse(VERIFIED[0].kernel)
    folder = template_dir()
    hashes = []
    for name, more in (("same", ""), ("comment", "// more\n"), ("constant", "constexpr int more = 1;\n")):
        shutil.copytree(folder, tmp_path / name)
        with (tmp_path / name / "unit.hpp").open("a", encoding="utf-8") as file:
            file.write(more)
        monkeypatch.setattr(harness, "template_dir", lambda at=tmp_path / name: at)
        hashes.append(source_hash(device, kernel))
    assert hashes[0] == hashes[1] != hashes[2]
