"""8-bit floating-point numbers: every code by its definition, and rounding compared with all numbers."""

from __future__ import annotations

from itertools import pairwise
from math import inf, isnan, nan

import numpy as np
import pytest

from ckh.bench.isolated.typed import E4M3, E4M3_FNUZ, E5M2, E5M2_FNUZ, Float8
from tests.bench.float8 import defined

FORMATS = {"E4M3": E4M3, "E5M2": E5M2, "E4M3_FNUZ": E4M3_FNUZ, "E5M2_FNUZ": E5M2_FNUZ}


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_decodes_to_its_value(name: str) -> None:
    """All 256 are checked, including negative zero and NaN."""
    np.testing.assert_array_equal(FORMATS[name].values, np.array(defined(name), np.float32))
    zeros = [code for code, number in enumerate(FORMATS[name].values) if number == 0]
    assert zeros == ([0] if "FNUZ" in name else [0, 0x80])


@pytest.mark.parametrize(
    ("name", "greatest", "least_normal", "least"),
    [
        ("E4M3", 448.0, 2.0**-6, 2.0**-9),
        ("E5M2", 57344.0, 2.0**-14, 2.0**-16),
        ("E4M3_FNUZ", 240.0, 2.0**-7, 2.0**-10),
        ("E5M2_FNUZ", 57344.0, 2.0**-15, 2.0**-17),
    ],
)
def test_ranges_match_the_specifications(name: str, greatest: float, least_normal: float, least: float) -> None:
    """The largest number, the smallest normal one and the smallest of all, as stated by AMD and OCP."""
    encoding = FORMATS[name]
    finite = encoding.values[np.isfinite(encoding.values)]
    assert (finite.max(), encoding.least_normal, finite[finite > 0].min()) == (greatest, least_normal, least)
    assert encoding.values[encoding.encode(np.array([least_normal]))] == least_normal


@pytest.mark.parametrize("name", FORMATS)
def test_every_value_encodes_to_its_code(name: str) -> None:
    """Decoding and encoding changes nothing, including the sign of zero if there is one."""
    encoding = FORMATS[name]
    codes = np.array([code for code, number in enumerate(defined(name)) if not isnan(number)], np.uint8)
    np.testing.assert_array_equal(encoding.encode(encoding.decode(codes)), codes)


def nearest(candidates: list[tuple[int, float]], number: float) -> float:
    """The nearest of codes' numbers, the even code for ties, by exhaustive search."""
    return min((abs(value - number), code % 2, value) for code, value in candidates)[2]


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_rounded_to_the_nearest(name: str) -> None:
    """Midpoints between neighbours, numbers next to them, and random ones of every size, in float32 and float64."""
    encoding = FORMATS[name]
    candidates = [(code, value) for code, value in enumerate(defined(name)) if abs(value) < inf]
    finite = sorted({value for _, value in candidates})
    halves = [(low + high) / 2 for low, high in pairwise(finite)]
    random = np.random.default_rng(1)
    drawn = random.uniform(-1, 1, 100) * 2.0 ** random.integers(-20, 8, 100)
    numbers = np.array([*halves, *np.nextafter(halves, inf), *np.nextafter(halves, -inf), *drawn])
    numbers = numbers[np.abs(numbers) <= finite[-1]]
    for precise in (numbers, numbers.astype(np.float32)):
        expected = [nearest(candidates, float(number)) for number in precise]
        assert encoding.decode(encoding.encode(precise)).tolist() == expected


@pytest.mark.parametrize(
    ("name", "last", "beyond"),
    [("E4M3", 464.0, nan), ("E5M2", 61439.0, inf), ("E4M3_FNUZ", 247.9, nan), ("E5M2_FNUZ", 61439.0, nan)],
)
def test_too_large_values_are_nan(name: str, last: float, beyond: float) -> None:
    """This begins half a step above the largest number, and includes infinities; NaN stays NaN."""
    encoding = FORMATS[name]
    greatest = max(value for value in defined(name) if value < inf)
    assert encoding.decode(encoding.encode(np.array([last, -last]))).tolist() == [greatest, -greatest]
    large = encoding.decode(encoding.encode(np.array([last * 1.01, 1e9, inf, -inf, nan])))
    np.testing.assert_array_equal(large, np.array([beyond, beyond, beyond, -beyond, nan], np.float32))


def test_small_numbers_of_fnuz_are_zero_without_a_sign() -> None:
    """The code of negative zero is NaN: no number rounded to zero may have it."""
    tiny = np.array([-1e-9, -0.0, 1e-9])
    assert E4M3_FNUZ.encode(tiny).tolist() == E5M2_FNUZ.encode(tiny).tolist() == [0, 0, 0]
    assert E4M3.encode(tiny).tolist() == E5M2.encode(tiny).tolist() == [0x80, 0x80, 0]


def test_formats_are_values() -> None:
    """Equal ones are equal."""
    assert Float8(3, 7, 0x7E, 0x7F, 0x7F) == E4M3
