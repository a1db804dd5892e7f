"""Registries: lossless, readable line by line, and refused as a whole for any error."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.archs import HOST, load_arch
from ckh.bench.planning.registry import as_it_runs, first_fits, read_registry, write_registry
from ckh.errors import DataError, OutputError, UsageError
from ckh.kernels.lists import Registry
from ckh.ops import operation
from ckh.ops.gemm_universal.kernels.pool import gemm_pool
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.kernel import kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.rules.sets import rule_set
from ckh.problems import Direction
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ckh.ops.grouped_conv.kernel import ConvKernel

CONVOLUTION = operation("grouped_conv")
NAME = (
    "grouped_conv_bwd_weight_fp16_nhwgc_2d_compv4_cshuffle_intrawave_128x64x32_2x2x1_32x32x16"
    "_vec8_8_4_bpc2_wg2_gm4_dsb_2stage_filter3x3_streamk_tree_persistent_large_tensor_pad101"
)


def kernels() -> tuple[ConvKernel, ...]:
    """Kernels that together use every option, the last with a unique value in each."""
    arch = load_arch("gfx950")
    drawn = [rule_set("profiler", direction, 2, "bf16", arch) for direction in Direction]
    return (*drawn[0], *drawn[1], *drawn[2], parse_kernel_name(NAME))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kernels.json"


def rename(name: str, document: dict[str, Any]) -> None:
    """Rename the second kernel of a registry."""
    document["kernels"][1]["name"] = name


def damaged(path: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """Error on reading a registry of three kernels after a change of its JSON."""
    write_registry(path, kernels()[:3], arch="gfx950")
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(DataError) as error:
        read_registry(path, CONVOLUTION)
    assert error.value.message.startswith(f"{path}: ")
    assert "\n" not in error.value.message
    return error.value.message.removeprefix(f"{path}: ")


def test_round_trip_loses_nothing(path: Path) -> None:
    """Kernels are read as written, in order, with every field."""
    write_registry(path, kernels(), arch="gfx950")
    assert read_registry(path, CONVOLUTION) == Registry("gfx950", kernels())


def test_kernels_of_any_operation_have_a_registry(path: Path) -> None:
    """GEMM kernels are written and read field by field too, and are not convolutions."""
    gemm = operation("gemm_universal")
    kernel = gemm_pool(load_arch("host"), "fp32", "ccr")[::40]
    write_registry(path, kernel, arch="host")
    assert read_registry(path, gemm) == Registry("host", kernel)
    with expect_refusal(DataError, "bad-field", "kernel"):
        read_registry(path, CONVOLUTION)


def test_a_kernel_is_one_line_with_its_name_first(path: Path) -> None:
    """Two kernels are two lines of the array, so that a file diff shows the different kernels."""
    two = kernels()[:2]
    write_registry(path, two, arch="gfx950")
    lines = path.read_text().splitlines()
    assert lines[:3] == ["{", '"version": 1,', '"arch": "gfx950",']
    assert len(lines) == 8
    for line, kernel in zip(lines[4:6], two, strict=True):
        entry = json.loads(line.rstrip(","))
        assert next(iter(entry)) == "name"
        assert entry == {"name": kernel_name(kernel), **asdict(kernel)}


def test_an_empty_registry_is_valid(path: Path) -> None:
    """An empty set is written and read."""
    write_registry(path, (), arch="gfx942")
    assert read_registry(path, CONVOLUTION) == Registry("gfx942", ())


def test_a_failed_write_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk fails, the error is one line and the file is unchanged, with nothing beside it."""

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    write_registry(path, kernels()[:1], arch="gfx950")
    monkeypatch.setattr("os.fsync", fail)
    with expect_refusal(OutputError, "unwritable", "No space left"):
        write_registry(path, kernels(), arch="gfx950")
    assert read_registry(path, CONVOLUTION).kernels == kernels()[:1]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vector_a": None}, "is incomplete"),
        ({"epilogue": "fused"}, "unknown epilogue 'fused'"),
        ({"layout": "NHWGC"}, "unknown layout 'NHWGC'"),
        ({"tile_m": 64.5}, "a kernel has a value that its name cannot express"),
        ({"tile_m": -1}, "a kernel has a value that its name cannot express"),
        ({"tile_m": "16"}, "does not identify its kernel"),
    ],
)
def test_a_kernel_without_a_name_is_not_written(path: Path, change: dict[str, Any], words: str) -> None:
    """A kernel that could not be read back is refused, and no file is created."""
    with pytest.raises(UsageError, match=words):
        write_registry(path, (replace(kernels()[0], **change),), arch="gfx950")
    assert not path.exists()


def test_numbers_of_numpy_are_written_as_numbers(path: Path) -> None:
    """A kernel from a table has NumPy integers and bools; its registry is that of the plain kernel."""
    plain = kernels()[0]
    change: dict[str, Any] = {"tile_m": np.int64(plain.tile_m), "two_stage": np.bool_(plain.two_stage)}
    write_registry(path, (replace(plain, **change),), arch="gfx950")
    assert read_registry(path, CONVOLUTION).kernels == (plain,)


def test_a_kernel_is_not_written_twice(path: Path) -> None:
    """The same kernel at two positions is refused, naming both."""
    first, second = kernels()[:2]
    with expect_refusal(UsageError, "duplicate-rows", "0", "2"):
        write_registry(path, (first, second, first), arch="gfx950")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("version"), "version is missing, expected a value of type int"),
        (lambda d: d.update(version=2), "version is 2, this ckh reads 1"),
        (lambda d: d.update(version="1"), "version must be of type int, not '1'"),
        (lambda d: d.update(arch=None), "arch must be of type str, not None"),
        (lambda d: d.update(kernels={}), "kernels must be a list"),
        (lambda d: d.pop("kernels"), "kernels must be a list"),
        (lambda d: d.update(note=""), "note is not a known field"),
        (lambda d: d["kernels"].insert(1, 7), "kernels[1] must be an object"),
        (lambda d: d["kernels"][1].update(colour=1), "kernels[1].colour is not a known field"),
        (lambda d: d["kernels"][2].pop("tile_k"), "kernels[2].tile_k is missing"),
        (lambda d: d["kernels"][2].pop("name"), "kernels[2].name is missing, expected a value of type str"),
        (lambda d: d["kernels"][0].update(tile_m="64"), "kernels[0].tile_m is '64', the kernel's name says 16"),
        (lambda d: d["kernels"][0].update(tile_m=64.0), "kernels[0].tile_m is 64.0, the kernel's name says 16"),
        (lambda d: d["kernels"][0].update(two_stage=0), "kernels[0].two_stage is 0, the kernel's name says False"),
        (lambda d: d["kernels"][0].update(wave_m=True), "kernels[0].wave_m is True, the kernel's name says 1"),
        (lambda d: d["kernels"][0].update(vector_a=None), "kernels[0].vector_a is None, the kernel's name says 8"),
        (lambda d: d["kernels"][0].update(streamk=1), "kernels[0].streamk is 1, the kernel's name says None"),
        (
            lambda d: d["kernels"][0].update(scheduler="wave"),
            "kernels[0].scheduler is 'wave', the kernel's name says 'interwave'",
        ),
        (
            lambda d: d["kernels"][1].update(tile_m=4096),
            "kernels[1].tile_m is 4096, the kernel's name says 16",
        ),
        (lambda d: d["kernels"].append(d["kernels"][1]), "kernels[3] is kernels[1] again"),
    ],
)
def test_damage_is_named_by_entry_and_field(
    path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    """Any invalid field is reported with the file, the entry and the field, in one line."""
    assert damaged(path, change) == message


@pytest.mark.parametrize("name", ["compv4", "", "grouped_conv_fwd_bf16_nhwgc_2d_mem"])
def test_an_invalid_name_is_refused(path: Path, name: str) -> None:
    """A name must be parsable."""
    expect_values(damaged(path, partial(rename, name)), "kernels[1].name")


def test_a_name_of_another_kernel_or_a_shorter_one_is_refused(path: Path) -> None:
    """Name and fields must be of the same kernel; AMD's short names are incomplete."""
    other = kernel_name(kernels()[2])
    expect_values(damaged(path, partial(rename, other)), "kernels[1]")
    short = "grouped_conv_forward_bf16_2d_16x16x64_basic_v1_interwave"
    message = damaged(path, lambda d: d["kernels"][0].update(name=short))
    expect_values(message, "kernels[0].name", short, "wave_m")


def test_names_are_canonical(path: Path) -> None:
    """A name of the kernel that is not its canonical one would escape a search, and is refused."""
    name = kernel_name(kernels()[1])
    expect_values(damaged(path, partial(rename, name.replace("_fwd_", "_forward_"))), "kernels[1].name", name)
    message = damaged(path, partial(rename, name.replace("_16x", "_016x", 1)))
    expect_values(message, "kernels[1].name")


def test_an_overlong_number_in_a_name(path: Path) -> None:
    """Five thousand digits are a data error like any other damage."""
    name = kernel_name(kernels()[1]).replace("_16x", "_" + "1" * 5000 + "x", 1)
    assert damaged(path, partial(rename, name)).startswith("kernels[1].name is wrong: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ":1: not JSON: Expecting value"),
        ('{"version": 1, "arch": "gfx942", "kernels": [', ":1: not JSON: Expecting value"),
        ('{"version": 1, "arch": "gfx942", "kernels": [NaN]}', "kernels[0] must be an object"),
        ('{"version": Infinity, "arch": "gfx942", "kernels": []}', "version must be of type int, not inf"),
        ('{"version": 1, "version": 1, "arch": "gfx942", "kernels": []}', "duplicate field: 'version'"),
        ("[" * 100_000, "nested more than 64 levels deep"),
        ("[]", "the file must be an object"),
        ("null", "the file must be an object"),
    ],
)
def test_a_damaged_file_is_refused(path: Path, text: str, words: str) -> None:
    """A file that is not a registry, or truncated, is a data error of one line."""
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_registry(path, CONVOLUTION)
    assert words in error.value.message
    assert str(path) in error.value.message
    assert "\n" not in error.value.message


def test_a_binary_or_missing_file(path: Path) -> None:
    """A file that is not text is damaged; a missing one cannot be read."""
    path.write_bytes(b"\xff\xfe\x00")
    with expect_refusal(DataError, "not-text"):
        read_registry(path, CONVOLUTION)
    path.unlink()
    with expect_refusal(DataError, "unreadable", "No such file"):
        read_registry(path, CONVOLUTION)


def test_the_kernels_in_use_may_be_those_of_predict(path: Path) -> None:
    """The output of ckh predict has one for each problem; one that does not apply, or is missing, is none."""
    op, names = operation("gemm_universal"), {}
    fits = "gemm_universal_fp32_rcr_mem_cshuffle_intrawave_False_False_False_False_64x64x256_2x2x1_16x16x16"
    for m, k in ((64, 256), (33, 256), (128, 256)):
        names[GemmProblem(m, 64, k, "fp32")] = fits
    results = [{"problem": problem.canonical(), "kernels": [{"kernel": name}]} for problem, name in names.items()]
    results[2]["kernels"] = []
    path.write_text(json.dumps({"schema": "ckh.predict_many", "results": results}), encoding="utf-8")
    first = first_fits(path, op, HOST, "fp32")
    chosen = [first(problem) for problem in (*names, GemmProblem(256, 64, 256, "fp32"))]
    assert [kernel and op.kernels.name(kernel) for kernel in chosen] == [fits, None, None, None]
    path.write_text(json.dumps({"schema": "ckh.predict_many", "results": [{}]}), encoding="utf-8")
    with expect_refusal(DataError, "bad-field", path):
        first_fits(path, op, HOST, "fp32")


def test_a_padded_answer_is_of_the_padded_problem() -> None:
    """Its kernels run 8 channels; the answer's own problem has 3."""
    rgb = "conv_forward_fp16_nhwgc_2d_n1_c3_k64_g1_i64x64_f7x7_s2x2_p3x3_d1x1"
    assert as_it_runs({"problem": rgb, "padded": {"c": 8}}, CONVOLUTION) == rgb.replace("_c3_", "_c8_")
    assert as_it_runs({"problem": rgb, "padded": None}, CONVOLUTION) == rgb
