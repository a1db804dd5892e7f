"""The registry: operations are looked up by name, problem and kernel, and imported on first use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh import ops
from ckh.errors import UsageError
from ckh.ops import DEFAULT_OPERATION, is_operation, operation, operation_names, operation_of
from ckh.requested import requested_problem
from tests.refusals import expect_refusal, expect_warning

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
# In the order in which their readers are tried on a file.
BUILT_IN = (
    *("grouped_conv", "gemm_universal", "aiter_gemm", "aiter_moe", "gemm_batched", "gemm_multi_d"),
    "gemm_preshuffle",
    "gemm_grouped",
    "gemm_streamk",
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages: four entry points, one of them with a valid record."""
    (tmp_path / "vectors.py").write_text(
        "from dataclasses import replace\nfrom ckh.ops import operation\n"
        "from ckh.requested import Requested, SizeOption\nclass Kernel: pass\n"
        "PART = Requested((SizeOption('n', 'AXPY: elements'), SizeOption('step', 'AXPY: stride', '1'),\n"
        "    SizeOption('g', 'of another type', kind=str), SizeOption('top', 'taken')),\n"
        "    lambda given, variant, dtype: (given, dtype), own=('step', 'n'), default_dtype='fp64')\n"
        "OTHER = operation('gemm_universal')\n"
        "OPERATION = replace(OTHER, name='axpy', prefix='axpy_', kernels=replace(OTHER.kernels, type=Kernel),\n"
        "    problems=replace(OTHER.problems, requested=lambda: PART))\n"
        "TAKEN = replace(OPERATION, name='taken', prefix='conv_of_mine_')\n",
        encoding="utf-8",
    )
    info = tmp_path / "vectors-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vectors\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[ckh.operations]\naxpy = vectors:OPERATION\nabsent = vectors:ABSENT\nother = vectors:OTHER\n"
        "taken = vectors:TAKEN\ngrouped_conv = vectors:OPERATION\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    _forget()
    yield tmp_path
    sys.modules.pop("vectors", None)
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    ops.all_requested.cache_clear()
    ops._plug_ins.cache_clear()
    ops.operation.cache_clear()
    ops._of_class.clear()


def test_the_table_matches_the_records() -> None:
    """Name, prefix and kernel class of ckh's own operations, including the default one."""
    assert operation_names()[: len(BUILT_IN)] == BUILT_IN
    assert DEFAULT_OPERATION in BUILT_IN
    for name, entry in ops._BUILT_IN.items():
        op = operation(name)
        assert (op.name, op.prefix, op.kernels.type.__name__) == (name, entry.prefix, entry.kernel_type)


def test_own_operations_are_entry_points_like_others() -> None:
    """The package declares each, in the table's order, and each passes the checks of an installed operation."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["entry-points"][ops.GROUP]
    assert tuple(declared) == BUILT_IN
    for name, value in declared.items():
        assert ops._loaded(EntryPoint(name, value, ops.GROUP)) is operation(name)


@pytest.mark.usefixtures("installed")
def test_an_installed_operation_works_like_the_others() -> None:
    """It is listed after ckh's own, which it cannot replace, and found by name, problem and kernel."""
    assert {point.name for point in entry_points(group="ckh.operations")} >= {"axpy", "absent", "other"}
    assert operation_names() == (*BUILT_IN, "axpy", "absent", "other", "taken")
    assert is_operation("axpy")
    assert not is_operation("pooling")
    op = operation("axpy")
    assert op.name == "axpy"
    assert operation_of("axpy_n5") is op
    assert ops.operation_of_kernel(sys.modules["vectors"].Kernel()) is op
    assert operation("grouped_conv").name == "grouped_conv"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", r"'absent' of the package vectors \(vectors:ABSENT\) cannot be used: AttributeError"),
        (
            "other",
            r"'other' of the package vectors \(vectors:OTHER\) cannot be used: a record of the name",
        ),
        (
            "taken",
            r"'taken' of the package vectors \(vectors:TAKEN\) cannot be used: its problem prefix 'conv_of_mine_'",
        ),
    ],
)
def test_a_broken_package_is_named(name: str, message: str) -> None:
    """The line states the operation and its location."""
    with pytest.raises(UsageError, match=message) as raised:
        operation(name)
    assert "\n" not in raised.value.message


@pytest.mark.usefixtures("installed")
def test_an_installed_operation_is_requested_by_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    """An option of its own selects it, a shared option does not; a broken package is skipped with a warning."""
    parts = ops.all_requested()
    assert tuple(parts) == (*BUILT_IN, "axpy")
    assert capsys.readouterr().err.count("cannot be used") == 3
    assert ops.meant_operation({"step"}, parts) == "axpy"
    assert ops.meant_operation({"n", "c"}, parts) is None
    assert ops.meant_operation({"n", "m", "step"}, parts) == "gemm_universal"
    problem = requested_problem("axpy", parts["axpy"], {"n": 4}, "", "fp32")
    assert problem == ({"n": 4}, "fp32")
    for given, variant, strange in (({"c": 4}, "", "--c"), ({"n": 4}, "forward", "--variant")):
        with expect_refusal(UsageError, "inapplicable-option", strange):
            requested_problem("axpy", parts["axpy"], given, variant, "fp32")


def test_the_command_line_has_the_options_of_installed_operations(installed: Path) -> None:
    """Shared options have their own help; options of another type or with a name in use are excluded."""
    environment = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{ROOT}", "COLUMNS": "300"}
    command = [sys.executable, "-m", "ckh", "predict", "--help", "--op", "axpy"]
    done = subprocess.run(command, env=environment, cwd=installed, capture_output=True, text=True, check=True)
    shown = re.findall(r"^  --([a-z-]+)", done.stdout.partition("Problem:")[2], re.MULTILINE)
    assert shown[:6] == ["op", "n", "step", "dtype", "arch", "problems"]
    text = " ".join(done.stdout.split())
    for option in (
        "--step <int> AXPY: stride. [1]",
        "--n <int> AXPY: elements.",
        "with --m gemm_universal; with --step axpy]",
        "--dtype <str> Element type. [fp64]",
    ):
        assert text.count(option) == 1
    for name in ("g", "top"):
        expect_warning(done.stderr, "duplicate-name", f"--{name} of axpy")


@pytest.mark.slow
def test_a_prediction_reads_only_its_operation_and_model(tmp_path: Path) -> None:
    """For a GEMM on the host nothing of convolutions is imported, and one spec is parsed."""
    program = (
        "import os, sys\nfrom ckh.learn.models import artifact\nread, read_spec = [], artifact.read_spec\n"
        "def noted(path):\n    read.append(path.name)\n    return read_spec(path)\n"
        "artifact.read_spec = noted\nfrom ckh.entry import run\n"
        "assert run(['predict', '--m', '64', '--n', '64', '--k', '64', '--dtype', 'fp8', '--top', '1']) == 0\n"
        "print(*sorted(set(read)))\nprint(*sorted(m for m in sys.modules if m.startswith('ckh.ops.')))\n"
    )
    environment = {**os.environ, "CKH_QUICK": "0", "XDG_DATA_HOME": str(tmp_path), "CKH_CACHE": str(tmp_path)}
    environment.pop("CKH_MODELS", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    *_, models, modules = done.stdout.splitlines()
    assert models == "gemm_universal_fp8_gfx950"
    assert "ckh.ops.gemm_universal.operation" in modules.split()
    assert not {"ckh.ops.grouped_conv.operation", "ckh.ops.aiter_gemm.operation"} & set(modules.split())
