"""Filters compared with Python's own conditions, and refused filters."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckh.archs import load_arch
from ckh.errors import UsageError
from ckh.kernels.filter import MAX_LENGTH, field_types, parse_filter
from ckh.ops.grouped_conv.kernel import ConvKernel, parse_kernel_name
from ckh.ops.grouped_conv.rules.sets import rule_set
from ckh.problems import Direction
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Thing:
    """A kernel of another kind, with a field of each type."""

    size: int
    name: str
    flag: bool
    part: int | None = None
    sizes: tuple[int, ...] = ()


THINGS = tuple(Thing(*values) for values in product((0, 1, 2), ("a", "b"), (False, True), (None, 1)))
KERNELS = rule_set("tests", Direction.BWD_WEIGHT, 2, "fp16", load_arch("gfx942"))

# Each filter with the same condition in Python.
MEANINGS: tuple[tuple[str, Callable[[ConvKernel], bool]], ...] = (
    ('pipeline == "basic_v1" and tile_m >= 64', lambda k: k.pipeline == "basic_v1" and k.tile_m >= 64),
    ('pipeline != "mem"', lambda k: k.pipeline != "mem"),
    ("tile_m < 64", lambda k: k.tile_m < 64),
    ("tile_m <= 64", lambda k: k.tile_m <= 64),
    ("64 > tile_n", lambda k: k.tile_n < 64),
    ("tile_n > 64", lambda k: k.tile_n > 64),
    ("32 <= tile_m <= 64 < tile_n", lambda k: 32 <= k.tile_m <= 64 < k.tile_n),
    ("tile_m == tile_n", lambda k: k.tile_m == k.tile_n),
    ('pipeline in ("mem", "compv3")', lambda k: k.pipeline in {"mem", "compv3"}),
    ("tile_k not in [32]", lambda k: k.tile_k != 32),
    ("two_stage", lambda k: k.two_stage),
    ("not two_stage or streamk_persistent", lambda k: not k.two_stage or k.streamk_persistent),
    ("not (two_stage or explicit_gemm)", lambda k: not (k.two_stage or k.explicit_gemm)),
    ("two_stage or tile_m == 16 and tile_n == 16", lambda k: k.two_stage or (k.tile_m, k.tile_n) == (16, 16)),
    ("two_stage == False", lambda k: not k.two_stage),
    ('streamk == "tree"', lambda k: k.streamk == "tree"),
    ("streamk == None", lambda k: k.streamk is None),
    ('streamk in ("tree", None)', lambda k: True),
    ('scheduler == "interwave"', lambda k: k.scheduler.value == "interwave"),
    ('variant in ("bwd_weight", "forward")', lambda k: True),
    ("tile_m == -16", lambda k: False),
    ("True", lambda k: True),
)


@pytest.mark.parametrize(("text", "condition"), MEANINGS, ids=[text for text, _ in MEANINGS])
def test_a_filter_selects_matching_kernels(text: str, condition: Callable[[ConvKernel], bool]) -> None:
    """A filter selects exactly the kernels for which the same condition is true in Python."""
    is_chosen = parse_filter(text, ConvKernel)
    assert [is_chosen(kernel) for kernel in KERNELS] == [bool(condition(kernel)) for kernel in KERNELS]


def test_conditions_distinguish_kernels() -> None:
    """All but four of the filters above are true of some kernels and false of others."""
    decisive = [text for text, condition in MEANINGS if len({bool(condition(kernel)) for kernel in KERNELS}) == 2]
    assert len(MEANINGS) - len(decisive) == 4


_ATOMS = st.sampled_from(
    (
        "size == 1",
        "size > 0",
        "1 <= size <= 2",
        'name == "a"',
        'name in ("b", "c")',
        "flag",
        "part == None",
        "part != 1",
    )
)
_TEXTS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from((" and ", " or ")), inner).map("".join),
        inner.map("not ({})".format),
        inner.map("({})".format),
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw is, on a busy machine
@given(_TEXTS)
def test_nested_conditions_follow_python(text: str) -> None:
    """And, or, not and parentheses bind as they do in Python, whose own evaluation is the reference."""
    is_chosen = parse_filter(text, Thing)
    code = compile(ast.parse(text, mode="eval"), "filter", "eval")
    for thing in THINGS:
        names = {"size": thing.size, "name": thing.name, "flag": thing.flag, "part": thing.part}
        assert is_chosen(thing) == eval(code, {}, names)  # noqa: S307 - text is made of the atoms above


def test_an_unknown_field_compares_as_false() -> None:
    """A kernel parsed from a short name has no vector widths: no filter on them selects it, except None."""
    kernel = parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave")
    for text in ("vector_a < 9", "vector_a <= 9", "vector_a > 0", "vector_a >= 0", "vector_a == 4", "explicit_gemm"):
        assert parse_filter(text, ConvKernel)(kernel) is False
    left_out = "vector_a == None and vector_a != 4 and not explicit_gemm"
    assert parse_filter(left_out, ConvKernel)(kernel)
    assert parse_filter("vector_a < 9", ConvKernel)(replace(kernel, vector_a=8))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the filter is empty"),
        ("  ", "the filter is empty"),
        ("pipeline ==", "not a filter"),
        ("size == 1; flag", "not a filter"),
        ("flag\x00", "not a filter"),
        ("\ud800", "not a filter"),
        ("1in (1, 2)", "not a filter"),
        ("size", "size is an integer, not true or false"),
        ("flag and 3", "3 is an integer, not true or false"),
        ('size == "a"', "size is an integer, 'a' is text, not comparable"),
        ("1 == name", "1 is an integer, name is text, not comparable"),
        ("size in (1, 'a')", "size is an integer, 'a' is text, not comparable"),
        ("0 < size < name", "size is an integer, name is text, not comparable"),
        ("size == True", "size is an integer, True is true or false, not comparable"),
        ("flag == 1", "flag is true or false, 1 is an integer, not comparable"),
        ("size == None", "size is an integer, None is None, not comparable"),
        ("sizes == 1", "sizes is of another type, 1 is an integer, not comparable"),
        ('name < "b"', "name is text, which has no order"),
        ("flag >= False", "flag is true or false, which has no order"),
        ("part < None", "None is None, which has no order"),
        ('name in "abc"', "name and 'abc' cannot be compared with this operator"),
        ("name == ('a', 'b')", "name and a list cannot be compared with this operator"),
        ("[1] == size", "a list and size cannot be compared with this operator"),
        ("part is None", "`is` is not supported"),
        ("size in (1, part)", "'part' is not supported"),
        ("size + 1 == 2", "'size + 1' is not supported"),
        ("size == 1.5", "'1.5' is not supported"),
        ("name == b'a'", "\"b'a'\" is not supported"),
        ("-size == 1", "'-size' is not supported"),
        ("name.upper() == 'A'", "'name.upper()' is not supported"),
        ("__import__('os')", "is not supported"),
        ("[size for size in (1, 2)]", "is not supported"),
        ("(flag := True)", "is not supported"),
        ("flag if flag else flag", "is not supported"),
        ("(flag == True) == True", "'flag == True' is not supported"),
        ("__class__ == 1", "unknown field '__class__'"),
    ],
)
def test_refused(text: str, words: str) -> None:
    """An invalid filter is refused in one line with the reason, before any kernel is checked."""
    with pytest.raises(UsageError) as error:
        parse_filter(text, Thing)
    assert words in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("text", "closest"), [("tile_mm > 3", "tile_m"), ("pipelin == 'mem'", "pipeline"), ("twostage", "two_stage")]
)
def test_an_unknown_field_suggests_the_closest(text: str, closest: str) -> None:
    """A misspelt field is refused with the most similar one."""
    with expect_refusal(UsageError, "unknown-field") as error:
        parse_filter(text, ConvKernel)
    assert error.value.hint == f"did you mean {closest}?"


def test_fields_of_different_types_are_not_compared() -> None:
    """A number is not compared with a text, although both may be None."""
    with expect_refusal(UsageError, "filter-type", "vector_a", "streamk"):
        parse_filter("vector_a == streamk", ConvKernel)
    assert not parse_filter("vector_a == vector_c", ConvKernel)(replace(KERNELS[0], vector_a=8, vector_c=4))


def test_an_impossible_value_is_refused() -> None:
    """A field with known values is not compared with any other text."""
    for text in ('variant == "forwrad"', 'variant in ("forward", "forwrad")', '"forwrad" != variant'):
        with pytest.raises(UsageError, match="forwrad") as error:
            parse_filter(text, ConvKernel)
        expect_values(error.value.hint, "forward, bwd_data, bwd_weight")


@pytest.mark.parametrize(
    "text",
    [
        "not " * 41 + "flag",
        "not " * 900 + "flag",
        "-" * 3000 + "1 == size",
        "(" * 1900 + "flag" + ")" * 1900,
        "[" * 150 + "]" * 150 + " == size",
        "flag and " * 10_000 + "flag",
        "x" * (MAX_LENGTH + 1),
    ],
)
def test_deep_or_long_filters_are_refused(text: str) -> None:
    """Depth and length end in a usage error, never in a RecursionError."""
    with expect_refusal(UsageError, "bad-filter"):
        parse_filter(text, Thing)


def test_long_flat_filters_are_accepted() -> None:
    """Length is not depth: many alternatives side by side are accepted."""
    is_chosen = parse_filter(" or ".join(f"size == {number}" for number in range(250)), Thing)
    assert is_chosen(Thing(249, "a", flag=False))
    assert not is_chosen(Thing(250, "a", flag=False))


def test_field_types_of_a_kernel() -> None:
    """The types are read from the dataclass: optional fields, enums as text with their values, no unknown ones."""
    types = field_types(ConvKernel)
    assert types["tile_m"].types == {int}
    assert types["vector_a"].types == {int, type(None)}
    assert types["two_stage"].types == {bool}
    assert types["scheduler"].types == {str}
    assert types["scheduler"].choices == ("intrawave", "interwave")
    assert field_types(Thing)["sizes"].types == frozenset()
