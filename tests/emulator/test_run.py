"""`ckh.run` on the emulated GPU: compiled kernels compute the same as einsum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ckh
from ckh import ConvProblem, Direction, GemmProblem
from ckh.bench.devices.device import EMULATED_KIND
from ckh.bench.devices.hip_device import EmulatedDevice
from ckh.bench.isolated.typed import element_type
from ckh.bench.planning.plan import full_name
from ckh.ops.gemm_universal.problem import output_dtype
from ckh.running import runnable
from tests.emulator.keep import KEPT
from tests.refusals import expect_refusal
from tests.running.arrays import expected, operands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.emulator.keep import Kept

_BY_FILE = {kept.file: kept for kept in KEPT}
_CONV = ConvProblem(Direction.FORWARD, n=1, c=16, k=16, g=2, hi=5, wi=6, y=3, x=3, pad_h=1, pad_w=1, dtype="fp16")
_PROBLEMS: dict[str, Any] = {
    "forward_basic_v1": _CONV,
    "bwd_data_basic_v1": _CONV.replaced(variant=Direction.BWD_DATA),
    "bwd_weight_two_stages": _CONV.replaced(variant=Direction.BWD_WEIGHT),
    "forward_gfx950_compv4": _CONV.replaced(dtype="bf16"),
    "gemm_persistent": GemmProblem(40, 24, 72, "fp16", "ccr"),
    "gemm_fp8_mem": GemmProblem(48, 32, 80, "fp8", "crr"),
    "gemm_gfx950_fp8": GemmProblem(40, 32, 160, "fp8", "rrr"),
    "gemm_gfx90a_compv4": GemmProblem(32, 32, 128, "fp32", "rcr"),
}
_QUICK = "forward_basic_v1"


@pytest.fixture
def builds(
    compiled: Callable[[bytes], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Kept], int]]:
    """The compiler "builds" the library of a kept kernel."""
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setattr(EmulatedDevice, "emit", lambda _, kernel: f"// {full_name(kernel)}")
    monkeypatch.setattr(EmulatedDevice, "refusals", lambda *_: None)
    runnable.close_all()
    yield lambda kept: compiled(kept.library())
    runnable.close_all()


def _run(kept: Kept, problem: Any, *arrays: Any, **options: Any) -> Any:
    return _kernel(kept, problem, **options)(*arrays, verify=True)


def _kernel(kept: Kept, problem: Any, **options: Any) -> Any:
    return ckh.kernel(problem, device=EMULATED_KIND, arch=kept.arch, kernels=[kept.name], timeout_s=300.0, **options)


@pytest.mark.parametrize(
    "file", [_QUICK, *(pytest.param(file, marks=pytest.mark.slow) for file in _PROBLEMS if file != _QUICK)]
)
def test_results_are_right(file: str, builds: Callable[[Kept], int]) -> None:
    """Every direction, layout and element type; sums are exact, and results are rounded once."""
    kept, problem = _BY_FILE[file], _PROBLEMS[file]
    builds(kept)
    fnuz = kept.arch == "gfx942"
    element = element_type(problem.dtype, fnuz_floats=fnuz)
    given = operands(problem, np.float32, 0.25)
    outcome = _run(kept, problem, *(element.rounded(item) for item in given))
    is_gemm = isinstance(problem, GemmProblem)
    result = element_type(output_dtype(problem.dtype) if is_gemm else problem.dtype)
    right = expected(problem, *given)
    assert outcome.dtype == result.storage
    # A result of bf16 may be cut off instead of rounded: one unit in the last place.
    allowed = 2.0**-7 if problem.dtype == "bf16" else 0.0
    np.testing.assert_allclose(result.widened(outcome), result.widened(result.rounded(right)), rtol=allowed, atol=0)


def test_channels_are_padded(builds: Callable[[Kept], int]) -> None:
    """Three input and five output channels, which no wide vector divides, are padded with zeros."""
    kept = _BY_FILE[_QUICK]
    builds(kept)
    problem = _CONV.replaced(c=3, k=5, g=1)
    x, w = operands(problem, np.float16, 0.25)
    chosen = _kernel(kept, problem)
    assert (chosen.runs.c, chosen.runs.k) == (8, 8)
    result = chosen(x.reshape(1, 5, 6, 3), w.reshape(5, 3, 3, 3), verify=True)
    assert result.shape == (1, 5, 6, 5)
    np.testing.assert_array_equal(result.reshape(problem.output_shape), expected(problem, x, w).astype(np.float16))


@pytest.mark.slow
def test_bfloat16_by_name(builds: Callable[[Kept], int]) -> None:
    """Arrays of ml_dtypes and PyTorch tensors keep their types; plain arrays hold the bits."""
    kept, problem = _BY_FILE["forward_gfx950_compv4"], _PROBLEMS["forward_gfx950_compv4"]
    builds(kept)
    given = operands(problem, np.float32, 0.25)
    bits = _run(kept, problem, *(element_type("bf16").rounded(item) for item in given))
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is absent: pip install ml_dtypes")
    named = _run(kept, problem, *(item.astype(ml_dtypes.bfloat16) for item in given))
    assert named.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(named.view(np.uint16), bits)
    torch = pytest.importorskip("torch", reason="PyTorch is absent: pip install torch")
    tensor = _run(kept, problem, *(torch.from_numpy(item).to(torch.bfloat16) for item in given))
    assert tensor.dtype == torch.bfloat16
    np.testing.assert_array_equal(tensor.view(torch.int16).numpy().view(np.uint16), bits)


def test_no_times(builds: Callable[[Kept], int]) -> None:
    """Exhaustive measurement needs a device with times."""
    builds(_BY_FILE[_QUICK])
    with expect_refusal(ckh.UsageError, "inapplicable-option", "emulated"):
        _run(_BY_FILE[_QUICK], _CONV, exhaustive=True)
