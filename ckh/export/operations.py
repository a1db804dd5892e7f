"""NumPy's operations in C: what each becomes, for each kind of number."""

from __future__ import annotations

from ckh.ranking.symbolic import Number

_T, _I, _R = Number
TYPES = {_T: "int", _I: "int64_t", _R: "double"}
CASTS = {
    (_T, _R): "(double){0}",
    (_I, _R): "(double){0}",
    (_T, _I): "(int64_t){0}",
    (_R, _I): "ckh_integer({0})",
    (_R, _T): "{0} != 0.0",
    (_I, _T): "{0} != 0",
}
_COMPARISONS = {
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
}
# NumPy's function and the kind of its operands -> C, and the kind of its result.
OPERATIONS: dict[tuple[str, Number], tuple[str, Number]] = {
    **{(name, kind): (f"{{0}} {sign} {{1}}", _T) for name, sign in _COMPARISONS.items() for kind in Number},
    **{(name, _R): (f"{{0}} {sign} {{1}}", _R) for name, sign in (("add", "+"), ("subtract", "-"), ("multiply", "*"))},
    **{
        (name, _I): (f"ckh_wrap((uint64_t){{0}} {sign} (uint64_t){{1}})", _I)
        for name, sign in (("add", "+"), ("subtract", "-"), ("multiply", "*"))
    },
    ("negative", _R): ("-{0}", _R),
    ("negative", _I): ("ckh_wrap(0 - (uint64_t){0})", _I),
    ("bitwise_and", _I): ("{0} & {1}", _I),
    ("bitwise_or", _I): ("{0} | {1}", _I),
    ("add", _T): ("{0} | {1}", _T),
    ("multiply", _T): ("{0} & {1}", _T),
    **{(name, _T): ("{0} & {1}", _T) for name in ("bitwise_and", "logical_and")},
    **{(name, _T): ("{0} | {1}", _T) for name in ("bitwise_or", "logical_or")},
    **{(name, _T): ("!{0}", _T) for name in ("invert", "logical_not")},
    ("bitwise_xor", _T): ("{0} ^ {1}", _T),
    **{(name, _R): (f"ckh_{name}({{0}}, {{1}})", _R) for name in ("maximum", "minimum", "remainder", "floor_divide")},
    ("divide", _R): ("{0} / {1}", _R),
    **{
        (name, _R): (f"{name}({{0}})", _R)
        for name in ("ceil", "floor", "trunc", "rint", "sqrt", "exp", "exp2", "log", "log2", "log1p", "expm1")
    },
    ("absolute", _R): ("fabs({0})", _R),
    ("isnan", _R): ("isnan({0}) != 0", _T),
    ("isfinite", _R): ("isfinite({0}) != 0", _T),
    **{("where", kind): ("{0} ? {1} : {2}", kind) for kind in Number},
}
# Of integers these give what they give of the same real numbers.
ALWAYS_REAL = frozenset({"divide", "sqrt", "exp", "exp2", "log", "log2", "log1p", "expm1", "maximum", "minimum"})
ON_TRUTHS = frozenset({"logical_and", "logical_or", "logical_not"})
