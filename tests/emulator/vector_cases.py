"""Vector instructions and NumPy's results; sources are v[0:1], v[2:3] and v[4:5], the result is v[6:7]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.wave import Wave

Array = Any  # of NumPy
u16, i16, u32, i32, u64, i64 = np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64
f16, f32, f64 = np.float16, np.float32, np.float64


@dataclass(frozen=True)
class VectorCase:
    """An instruction, the types of its result and sources, and its NumPy function."""

    text: str
    result: Any
    sources: tuple[Any, ...]
    expected: Callable[..., Array]


def _same(tables: dict[tuple[Any, int], dict[str, Callable[..., Array]]]) -> list[VectorCase]:
    """Instructions by the type of sources and result, and the number of sources: "v_add_u32" for "v_add_u32 v6, …"."""
    return [
        _one(name, kind, (kind,) * count, do) for (kind, count), table in tables.items() for name, do in table.items()
    ]


def _register(number: int, kind: Any) -> str:
    return f"v[{number}:{number + 1}]" if np.dtype(kind).itemsize > 4 else f"v{number}"


def _text(name: str, result: Any, sources: tuple[Any, ...]) -> str:
    operands = [_register(6, result), *(_register(2 * place, kind) for place, kind in enumerate(sources))]
    return f"{name} {', '.join(operands)}"


def _one(name: str, result: Any, sources: tuple[Any, ...], expected: Callable[..., Array]) -> VectorCase:
    return VectorCase(_text(name, result, sources), result, sources, expected)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """Rounded once: exact in extended precision for fp32."""
    return (a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)).astype(a.dtype)


def _high(a: Array, b: Array, wide: Any) -> Array:
    return ((a.astype(wide) * b.astype(wide)) >> 32).astype(a.dtype)


def _truncated(a: Array, kind: Any) -> Array:
    limits = np.iinfo(kind)
    clipped = np.clip(np.nan_to_num(np.trunc(a.astype(f64)), posinf=1e300, neginf=-1e300), limits.min, limits.max)
    return np.where(np.isnan(a), 0, clipped).astype(kind)


def _halves(a: Array) -> tuple[Array, Array]:
    return a.astype(u16), (a >> u32(16)).astype(u16)


def _joined(low: Array, high: Array) -> Array:
    return low.view(u16).astype(u32) | high.view(u16).astype(u32) << u32(16)


def _packed(kind: Any, do: Callable[..., Array]) -> Callable[..., Array]:
    def whole(*sources: Array) -> Array:
        lows, highs = zip(*(_halves(source) for source in sources), strict=True)
        parts = [do(*(np.ascontiguousarray(item).view(kind) for item in half)) for half in (lows, highs)]
        return _joined(*(part.astype(kind) for part in parts))

    return whole


def _bytes(a: Array, kind: Any) -> Array:
    return np.ascontiguousarray(a).view(kind).reshape(len(a), 4)


def _dot4(kind: Any, wide: Any) -> Callable[..., Array]:
    return lambda a, b, c: ((_bytes(a, kind).astype(wide) * _bytes(b, kind)).sum(1) + c).astype(c.dtype)


def _pairs(do: Callable[..., Array]) -> Callable[..., Array]:
    """Operations on two fp32 in 64 bits."""

    def whole(*sources: Array) -> Array:
        parts = [np.ascontiguousarray(source).view(f32).reshape(-1, 2) for source in sources]
        return np.ascontiguousarray(do(*parts).astype(f32)).view(u64)[:, 0]

    return whole


def _perm(a: Array, b: Array, select: Array) -> Array:
    """Byte by byte: 0 to 3 from b, 4 to 7 from a, 8 to 11 signs of words, 12 is 0, above 0xff."""
    result = []
    for high, low, chosen in zip(a.tolist(), b.tolist(), select.tolist(), strict=True):
        both, out = high << 32 | low, 0
        for place in range(4):
            item = chosen >> 8 * place & 0xFF
            if item < 8:
                byte = both >> 8 * item & 0xFF
            elif item < 12:
                byte = 0xFF if both >> (16 * (item - 8) + 15) & 1 else 0
            else:
                byte = 0 if item == 12 else 0xFF
            out |= byte << 8 * place
        result.append(out)
    return np.array(result, u32)


def _minimum(a: Array, b: Array) -> Array:
    """The number if the other is a quiet NaN; -0 is less than 0."""
    result = np.fmin(a, b)
    return np.where((a == 0) & (b == 0) & (np.signbit(a) | np.signbit(b)), -np.zeros_like(a), result)


def _maximum(a: Array, b: Array) -> Array:
    result = np.fmax(a, b)
    return np.where((a == 0) & (b == 0) & ~(np.signbit(a) & np.signbit(b)), np.zeros_like(a), result)


def _bits(a: Array, at: Array, width: Array) -> Array:
    return (a >> (at & u32(31))) & ((u32(1) << (width & u32(31))) - u32(1))


def _signed_bits(a: Array, at: Array, width: Array) -> Array:
    count = (width & u32(31)).astype(i64)
    shifted = a.view(i32).astype(i64) >> (at & u32(31)).astype(i64)
    top = np.int64(1) << np.maximum(count - 1, 0)
    field = shifted & ((np.int64(1) << count) - 1)
    return np.where(count == 0, 0, (field ^ top) - top).astype(i32).view(u32)


def _leading(a: Array) -> Array:
    return np.array([32 - int(x).bit_length() if x else 0xFFFFFFFF for x in a], u32)


INTEGERS = [
    *_same(
        {
            (u32, 1): {
                "v_mov_b32": lambda a: a,
                "v_not_b32": lambda a: ~a,
                "v_bfrev_b32": lambda a: np.array([int(f"{x:032b}"[::-1], 2) for x in a], u32),
                "v_ffbh_u32": _leading,
                "v_ffbl_b32": lambda a: np.array(
                    [(int(x) & -int(x)).bit_length() - 1 if x else 0xFFFFFFFF for x in a], u32
                ),
            },
            (u32, 2): {
                "v_add_u32": lambda a, b: a + b,
                "v_sub_u32": lambda a, b: a - b,
                "v_subrev_u32": lambda a, b: b - a,
                "v_min_u32": np.minimum,
                "v_max_u32": np.maximum,
                "v_and_b32": lambda a, b: a & b,
                "v_or_b32": lambda a, b: a | b,
                "v_xor_b32": lambda a, b: a ^ b,
                "v_xnor_b32": lambda a, b: ~(a ^ b),
                "v_lshlrev_b32": lambda a, b: b << (a & u32(31)),
                "v_lshrrev_b32": lambda a, b: b >> (a & u32(31)),
                "v_mul_lo_u32": lambda a, b: a * b,
                "v_mul_hi_u32": lambda a, b: _high(a, b, u64),
                "v_mul_u32_u24": lambda a, b: ((a & u32(0xFFFFFF)).astype(u64) * (b & u32(0xFFFFFF))).astype(u32),
                "v_mul_hi_u32_u24": lambda a, b: (
                    (a & u32(0xFFFFFF)).astype(u64) * (b & u32(0xFFFFFF)) >> u64(32)
                ).astype(u32),
                "v_bcnt_u32_b32": lambda a, b: np.array([int(x).bit_count() for x in a], u32) + b,
                "v_bfm_b32": lambda a, b: ((u32(1) << (a & u32(31))) - u32(1)) << (b & u32(31)),
                "v_pk_add_u16": _packed(u16, lambda a, b: a + b),
                "v_pk_sub_i16": _packed(u16, lambda a, b: a - b),
                "v_pk_mul_lo_u16": _packed(u16, lambda a, b: a * b),
                "v_pk_lshlrev_b16": _packed(u16, lambda a, b: b << (a & u16(15))),
                "v_pk_lshrrev_b16": _packed(u16, lambda a, b: b >> (a & u16(15))),
                "v_pk_ashrrev_i16": _packed(i16, lambda a, b: b >> (a & i16(15))),
                "v_pk_max_i16": _packed(i16, np.maximum),
                "v_pk_min_i16": _packed(i16, np.minimum),
                "v_pk_max_u16": _packed(u16, np.maximum),
                "v_pk_min_u16": _packed(u16, np.minimum),
                "v_cvt_pk_u16_u32": lambda a, b: np.minimum(a, u32(65535)) | np.minimum(b, u32(65535)) << u32(16),
            },
            (i32, 2): {
                "v_min_i32": np.minimum,
                "v_max_i32": np.maximum,
                "v_ashrrev_i32": lambda a, b: b >> (a & i32(31)),
                "v_mul_hi_i32": lambda a, b: _high(a, b, i64),
                "v_mul_i32_i24": lambda a, b: (((a << 8) >> 8).astype(i64) * ((b << 8) >> 8)).astype(i32),
            },
            (u32, 3): {
                "v_add3_u32": lambda a, b, c: a + b + c,
                "v_lshl_add_u32": lambda a, b, c: (a << (b & u32(31))) + c,
                "v_add_lshl_u32": lambda a, b, c: (a + b) << (c & u32(31)),
                "v_lshl_or_b32": lambda a, b, c: (a << (b & u32(31))) | c,
                "v_and_or_b32": lambda a, b, c: (a & b) | c,
                "v_or3_b32": lambda a, b, c: a | b | c,
                "v_xad_u32": lambda a, b, c: (a ^ b) + c,
                "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
                "v_bfe_u32": _bits,
                "v_bfe_i32": _signed_bits,
                "v_perm_b32": _perm,
                "v_alignbit_b32": lambda a, b, c: ((a.astype(u64) << u64(32) | b) >> (c & u32(31)).astype(u64)).astype(
                    u32
                ),
                "v_alignbyte_b32": lambda a, b, c: (
                    (a.astype(u64) << u64(32) | b) >> (8 * (c & u32(3))).astype(u64)
                ).astype(u32),
                "v_min3_u32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
                "v_max3_u32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
                "v_med3_u32": lambda a, b, c: np.sort([a, b, c], axis=0)[1],
                "v_mad_u32_u24": lambda a, b, c: (a & u32(0xFFFFFF)) * (b & u32(0xFFFFFF)) + c,
                "v_mad_u32_u16": lambda a, b, c: (a & u32(0xFFFF)) * (b & u32(0xFFFF)) + c,
                "v_sad_u32": lambda a, b, c: np.where(a > b, a - b, b - a) + c,
                "v_sad_u8": lambda a, b, c: (
                    np.abs(_bytes(a, np.uint8).astype(i32) - _bytes(b, np.uint8)).sum(1).astype(u32) + c
                ),
                "v_dot4_u32_u8": _dot4(np.uint8, u64),
                "v_pk_mad_u16": _packed(u16, lambda a, b, c: a * b + c),
            },
            (i32, 3): {
                "v_min3_i32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
                "v_max3_i32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
                "v_med3_i32": lambda a, b, c: np.sort([a, b, c], axis=0)[1],
                "v_dot4_i32_i8": _dot4(np.int8, i64),
            },
            (u16, 2): {
                "v_add_u16": lambda a, b: a + b,
                "v_sub_u16": lambda a, b: a - b,
                "v_mul_lo_u16": lambda a, b: a * b,
                "v_lshlrev_b16": lambda a, b: b << (a & u16(15)),
                "v_lshrrev_b16": lambda a, b: b >> (a & u16(15)),
                "v_max_u16": np.maximum,
                "v_min_u16": np.minimum,
            },
        }
    ),
    _one("v_lshlrev_b64", u64, (u32, u64), lambda a, b: b << (a & u32(63)).astype(u64)),
    _one("v_lshrrev_b64", u64, (u32, u64), lambda a, b: b >> (a & u32(63)).astype(u64)),
    _one("v_ashrrev_i64", i64, (u32, i64), lambda a, b: b >> (a & u32(63)).astype(i64)),
    _one("v_lshl_add_u64", u64, (u64, u32, u64), lambda a, b, c: (a << (b & u32(7)).astype(u64)) + c),
]

FLOATS = [
    *_same(
        {
            (f32, 1): {
                "v_rcp_f32": lambda a: f32(1) / a,
                "v_sqrt_f32": np.sqrt,
                "v_rsq_f32": lambda a: (1 / np.sqrt(a.astype(f64))).astype(f32),
                "v_exp_f32": lambda a: np.exp2(a.astype(f64)).astype(f32),
                "v_log_f32": lambda a: np.log2(a.astype(f64)).astype(f32),
                "v_trunc_f32": np.trunc,
                "v_ceil_f32": np.ceil,
                "v_floor_f32": np.floor,
                "v_rndne_f32": np.rint,
            },
            (f32, 2): {
                "v_add_f32": lambda a, b: a + b,
                "v_sub_f32": lambda a, b: a - b,
                "v_subrev_f32": lambda a, b: b - a,
                "v_mul_f32": lambda a, b: a * b,
                "v_min_f32": _minimum,
                "v_max_f32": _maximum,
            },
            (f32, 3): {
                "v_fma_f32": _fma,
                "v_min3_f32": lambda a, b, c: _minimum(_minimum(a, b), c),
                "v_max3_f32": lambda a, b, c: _maximum(_maximum(a, b), c),
            },
            (f64, 2): {
                "v_add_f64": lambda a, b: a + b,
                "v_mul_f64": lambda a, b: a * b,
                "v_min_f64": _minimum,
                "v_max_f64": _maximum,
            },
            (f16, 1): {"v_sqrt_f16": np.sqrt, "v_floor_f16": np.floor, "v_rndne_f16": np.rint},
            (f16, 2): {
                "v_add_f16": lambda a, b: a + b,
                "v_sub_f16": lambda a, b: a - b,
                "v_mul_f16": lambda a, b: a * b,
                "v_max_f16": _maximum,
                "v_min_f16": _minimum,
            },
            (f16, 3): {"v_fma_f16": lambda a, b, c: (a.astype(np.longdouble) * b + c).astype(f16)},
            (u64, 2): {"v_pk_add_f32": _pairs(lambda a, b: a + b), "v_pk_mul_f32": _pairs(lambda a, b: a * b)},
            (u64, 3): {"v_pk_fma_f32": _pairs(_fma)},
            (u32, 2): {
                "v_pk_add_f16": _packed(f16, lambda a, b: a + b),
                "v_pk_mul_f16": _packed(f16, lambda a, b: a * b),
                "v_pk_max_f16": _packed(f16, _maximum),
                "v_pk_min_f16": _packed(f16, _minimum),
            },
            (u32, 3): {"v_pk_fma_f16": _packed(f16, lambda a, b, c: a.astype(np.longdouble) * b + c)},
        }
    ),
    _one("v_ldexp_f32", f32, (f32, i32), lambda a, b: np.ldexp(a, np.clip(b, -5000, 5000))),
    VectorCase("v_add_f32 v6, -v0, |v2|", f32, (f32, f32), lambda a, b: -a + np.abs(b)),
    VectorCase("v_mul_f32 v6, v0, v2 mul:2", f32, (f32, f32), lambda a, b: a * b * f32(2)),
    VectorCase(
        "v_fma_f32 v6, v0, v2, 1.0 clamp",
        f32,
        (f32, f32),
        lambda a, b: np.nan_to_num(np.clip(_fma(a, b, np.ones_like(a)), 0, 1), nan=0.0),
    ),
    VectorCase("v_add_f32 v6, 0x42280000, v0", f32, (f32,), lambda a: f32(42) + a),
    VectorCase("v_mul_f32 v6, 0.15915494, v0", f32, (f32,), lambda a: f32(0.15915494309189535) * a),
]

CONVERSIONS = [
    _one("v_cvt_f32_i32", f32, (i32,), lambda a: a.astype(f32)),
    _one("v_cvt_f32_u32", f32, (u32,), lambda a: a.astype(f32)),
    _one("v_cvt_f64_i32", f64, (i32,), lambda a: a.astype(f64)),
    _one("v_cvt_f64_u32", f64, (u32,), lambda a: a.astype(f64)),
    _one("v_cvt_f64_f32", f64, (f32,), lambda a: a.astype(f64)),
    _one("v_cvt_f32_f64", f32, (f64,), lambda a: a.astype(f32)),
    _one("v_cvt_f16_f32", f16, (f32,), lambda a: a.astype(f16)),
    _one("v_cvt_f32_f16", f32, (f16,), lambda a: a.astype(f32)),
    _one("v_cvt_u32_f32", u32, (f32,), lambda a: _truncated(a, u32)),
    _one("v_cvt_i32_f32", i32, (f32,), lambda a: _truncated(a, i32)),
    _one("v_cvt_i32_f64", i32, (f64,), lambda a: _truncated(a, i32)),
    _one("v_cvt_f32_ubyte0", f32, (u32,), lambda a: (a & u32(255)).astype(f32)),
    _one("v_cvt_f32_ubyte3", f32, (u32,), lambda a: (a >> u32(24)).astype(f32)),
]

FLOATS += [
    VectorCase("v_fmaak_f32 v6, v0, v2, 0x42280000", f32, (f32, f32), lambda a, b: _fma(a, b, np.full_like(a, 42))),
    VectorCase("v_fmamk_f32 v6, v0, 0x42280000, v2", f32, (f32, f32), lambda a, b: _fma(a, np.full_like(a, 42), b)),
]


def _bfloat(a: Array) -> Array:
    return (a.astype(u32) << u32(16)).view(f32)


def _to_bfloat(a: Array) -> Array:
    """Rounded to nearest, ties to even; a NaN is quiet."""
    bits = a.view(u32)
    rounded = (bits + u32(0x7FFF) + (bits >> u32(16) & u32(1))) >> u32(16)
    return np.where(np.isnan(a), bits >> u32(16) | u32(0x40), rounded).astype(u32)


def _half_bits(a: Array) -> Array:
    """Rounded to nearest, ties to even."""
    return a.astype(f16).view(u16).astype(u32)


def _any_nan(do: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *all_of: np.where(np.isnan(all_of).any(0), np.float32(np.nan), do(*all_of))


# What gfx950 adds.
GFX950 = [
    _one("v_cvt_f32_bf16", f32, (u16,), _bfloat),
    _one("v_cvt_pk_f16_f32", u32, (f32, f32), lambda a, b: _half_bits(a) | _half_bits(b) << u32(16)),
    _one("v_cvt_pk_bf16_f32", u32, (f32, f32), lambda a, b: _to_bfloat(a) | _to_bfloat(b) << u32(16)),
    _one("v_minimum3_f32", f32, (f32,) * 3, _any_nan(lambda a, b, c: _minimum(_minimum(a, b), c))),
    _one("v_maximum3_f32", f32, (f32,) * 3, _any_nan(lambda a, b, c: _maximum(_maximum(a, b), c))),
    VectorCase("v_bitop3_b32 v6, v0, v2, v4 bitop3:0x96", u32, (u32,) * 3, lambda a, b, c: a ^ b ^ c),
    VectorCase("v_bitop3_b32 v6, v0, v2, v4 bitop3:0xca", u32, (u32,) * 3, lambda a, b, c: (a & b) | (~a & c)),
    VectorCase("v_bitop3_b32 v6, v0, v2, v4 bitop3:0xec", u32, (u32,) * 3, lambda a, b, c: (a & c) | b),
]

# Compares: the result is a bit a lane in VCC.
_COMPARES: dict[str, Callable[..., Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
}
_FLOAT_COMPARES: dict[str, Callable[..., Array]] = {
    **_COMPARES,
    "neq": np.not_equal,
    "nlt": lambda a, b: ~(a < b),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
}
_INTEGER_COMPARES: dict[str, Callable[..., Array]] = {**_COMPARES, "ne": np.not_equal}
_KINDS = {"f32": f32, "f16": f16, "f64": f64, "i32": i32, "u32": u32, "u16": u16, "u64": u64}
COMPARES = [
    VectorCase(f"v_cmp_{name}_{suffix} vcc, {_register(0, kind)}, {_register(2, kind)}", np.bool_, (kind, kind), do)
    for suffix, kind in _KINDS.items()
    for name, do in (_FLOAT_COMPARES if suffix.startswith("f") else _INTEGER_COMPARES).items()
]


def inputs_of(case: VectorCase) -> dict[int, Array]:
    """Registers with 64 values of each source: special values of its type, and random bits or numbers."""
    random = np.random.default_rng(1)
    result: dict[int, Array] = {}
    for kind in case.sources:
        info = np.dtype(kind)
        if info.kind == "f":
            special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5, -3.5, 65504]
            values = np.array([*special, np.finfo(kind).max, np.finfo(kind).tiny], kind)
            scales = 10.0 ** random.integers(-3, 4, 64 - len(values))
            rest = (random.standard_normal(64 - len(values)) * scales).astype(kind)
        else:
            top = np.iinfo(kind)
            values = np.array([0, 1, top.max, top.min, 7, 31], kind)
            rest = random.integers(top.min, top.max, 64 - len(values), kind, endpoint=True)
        result[2 * len(result)] = random.permutation(np.concatenate([values, rest]).astype(kind))
    return result


def check_arithmetic(wave: Wave, case: VectorCase) -> None:
    """Compare an instruction with NumPy, bit by bit; any NaN is a NaN."""
    inputs = inputs_of(case)
    got = wave.run(case.text, vgprs=inputs).vector(6, case.result)
    with np.errstate(all="ignore"):
        expected = case.expected(*inputs.values()).astype(case.result)
    if np.dtype(case.result).kind == "f":
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        got, expected = np.nan_to_num(got), np.nan_to_num(expected)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    np.testing.assert_array_equal(got, expected)
