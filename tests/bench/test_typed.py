"""Element types: rounding to nearest even, or towards zero, and lossless widening."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from ckh.bench.isolated.typed import NAN_BYTE, element_type
from ckh.errors import UsageError
from tests.refusals import expect_values

DTYPES = ("fp32", "fp16", "bf16")
BF16_UNIT = 2.0**-7  # of the numbers from 1 to 2


def floats(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(values, np.float32)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_every_stored_number_survives(dtype: str) -> None:
    """All 65536 patterns are unchanged by widening and rounding; NaN stays NaN."""
    element = element_type(dtype)
    patterns = np.arange(1 << 16, dtype=np.uint16)
    wide = element.widened(patterns.view(element.storage))
    again = element.rounded(wide).view(np.uint16)
    is_nan = np.isnan(wide)
    np.testing.assert_array_equal(again[~is_nan], patterns[~is_nan])
    assert np.isnan(element.widened(again[is_nan].view(element.storage))).all()


@pytest.mark.parametrize(
    ("value", "rounded", "truncated"),
    [
        (1.0, 1.0, 1.0),
        (1 + 0.4 * BF16_UNIT, 1.0, 1.0),
        (1 + 0.6 * BF16_UNIT, 1 + BF16_UNIT, 1.0),
        (1 + 0.5 * BF16_UNIT, 1.0, 1.0),
        (1 + 1.5 * BF16_UNIT, 1 + 2 * BF16_UNIT, 1 + BF16_UNIT),
        (-1 - 0.6 * BF16_UNIT, -1 - BF16_UNIT, -1.0),
        (3.4e38, inf, 255 * 2.0**120),
        (-inf, -inf, -inf),
        (0.0, 0.0, 0.0),
    ],
)
def test_bf16_by_hand(value: float, rounded: float, truncated: float) -> None:
    """To nearest even, and towards zero."""
    element = element_type("bf16")
    assert element.truncated is not None
    assert element.widened(element.rounded(floats(value))).tolist() == [rounded]
    assert element.widened(element.truncated(floats(value))).tolist() == [truncated]


def test_bf16_rounds_to_the_nearest_of_its_neighbours() -> None:
    """Of a hundred thousand random numbers none is further from its rounding than from the neighbours."""
    element = element_type("bf16")
    assert element.truncated is not None
    values = np.random.default_rng(3).normal(scale=100, size=100_000).astype(np.float32)
    exact = values.astype(np.float64)
    lower = element.truncated(values)
    beside = np.stack([element.widened(lower), element.widened(lower + np.uint16(1))]).astype(np.float64)
    distance = np.abs(element.widened(element.rounded(values)).astype(np.float64) - exact)
    np.testing.assert_array_equal(distance, np.abs(beside - exact).min(axis=0))


def test_nan_stays_nan_in_bf16() -> None:
    """This includes a NaN whose set bits are all truncated, and one that rounding would overflow."""
    element = element_type("bf16")
    bits = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF], np.uint32)
    assert np.isnan(element.widened(element.rounded(bits.view(np.float32)))).all()
    assert np.isnan(element.widened(element.rounded(floats(nan, 1.0)))).tolist() == [True, False]


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill_bytes_are_nan(dtype: str) -> None:
    """An output of any type filled with them contains only NaN."""
    element = element_type(dtype)
    stored = np.frombuffer(bytes([NAN_BYTE]) * 4 * element.storage.itemsize, element.storage)
    assert np.isnan(element.widened(stored)).tolist() == [True] * 4


@pytest.mark.parametrize(("dtype", "least"), [("fp16", 2.0**-14), ("bf16", 2.0**-126)])
def test_operands_have_no_denormal_numbers(dtype: str, least: float) -> None:
    """Numbers that matrix units flush are zero from the start; the smallest normal number is kept."""
    element = element_type(dtype)
    operand = element.operand(floats(least, -least, 0.9 * least, -0.1 * least, 0.75))
    assert element.widened(operand).tolist() == [least, -least, 0, 0, 0.75]


def test_fp32_operands_are_the_values_themselves() -> None:
    """Bit for bit, down to the smallest denormal number."""
    values = floats(0.1, -1.0, 1e-45, 0.0)
    assert element_type("fp32").operand(values).tobytes() == values.tobytes()


def test_bounds_contain_kernel_results() -> None:
    """For bf16 both roundings, for fp16 the nearest; below the normal numbers also zero."""
    bf16, fp16 = element_type("bf16"), element_type("fp16")
    values = np.array([1 + 0.6 * BF16_UNIT, -1 - 0.6 * BF16_UNIT])
    assert bf16.lowest(values).tolist() == [1.0, -1 - BF16_UNIT]
    assert bf16.highest(values).tolist() == [1 + BF16_UNIT, -1.0]
    small = np.array([2.0**-16, -(2.0**-16), 2.0**-14, 1 + 2.0**-12])
    assert fp16.lowest(small).tolist() == [0.0, -(2.0**-16), 2.0**-14, 1.0]
    assert fp16.highest(small).tolist() == [2.0**-16, 0.0, 2.0**-14, 1.0]


def test_fp32_bounds_do_not_modify_their_argument() -> None:
    """Values that need no conversion are not modified."""
    values = floats(1e-45, -1e-45, 5.0)
    element = element_type("fp32")
    assert element.lowest(values).tobytes() == element.highest(values).tobytes() == values.tobytes()


@pytest.mark.parametrize("fnuz_floats", [False, True])
def test_other_dtypes_are_refused(fnuz_floats: bool) -> None:
    """The error names the supported ones."""
    with pytest.raises(UsageError, match="fp64") as caught:
        element_type("fp64", fnuz_floats=fnuz_floats)
    expect_values(caught.value.hint, "fp32, fp16, bf16, fp8, bf8, int8, int32")


@pytest.mark.parametrize(
    ("dtype", "fnuz_floats", "codes"),
    [
        # 1, -1, 0.75 and a denormal, which becomes zero.
        ("fp8", False, [0x38, 0xB8, 0x34, 0x00]),
        ("fp8", True, [0x40, 0xC0, 0x3C, 0x00]),
        ("bf8", False, [0x3C, 0xBC, 0x3A, 0x00]),
        ("bf8", True, [0x40, 0xC0, 0x3E, 0x00]),
    ],
)
def test_fp8_operands_use_the_encoding_of_the_architecture(dtype: str, fnuz_floats: bool, codes: list[int]) -> None:
    """CDNA3's exponents are biased by one more than OCP's."""
    element = element_type(dtype, fnuz_floats=fnuz_floats)
    operand = element.operand(floats(1, -1, 0.75, 0.9 * element.least_normal))
    assert operand.tolist() == codes
    assert element.widened(operand).tolist() == [1, -1, 0.75, 0]


def test_operands_of_int8_use_their_range() -> None:
    """The range -1 to 1 becomes -127 to 127, ties to even."""
    element = element_type("int8")
    operand = element.operand(floats(-1, 1, 0.5 / 127, 1.5 / 127, 0.49, 0))
    assert operand.dtype == np.int8
    assert operand.tolist() == [-127, 127, 0, 2, 62, 0]


def test_integers_are_widened_without_loss() -> None:
    """32-bit integers become float64, since float32 cannot represent all of them."""
    stored = np.array([2**24 + 1, -(2**31), 2**31 - 1], np.int32)
    element = element_type("int32")
    assert element.widened(stored).tolist() == [2**24 + 1, -(2**31), 2**31 - 1]
    assert element.rounded(np.array([2.0**24 + 1, -3.0, 1e10])).tolist() == [2**24 + 1, -3, 2**31 - 1]
    assert element.is_exact
    assert not element_type("fp16").is_exact


def test_an_unwritten_output_is_wrong() -> None:
    """It is NaN, or an integer that exceeds the sum of a hundred thousand products of int8."""
    assert np.isnan([element_type(dtype).unwritten for dtype in DTYPES]).all()
    assert abs(element_type("int32").unwritten) > 100_000 * 127 * 127
