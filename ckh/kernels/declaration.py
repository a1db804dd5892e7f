"""Declarations of kernels: a class states, with each field, its token in names and its meaning as a dataset's column.

    dtype: str = field(metadata=named(word("dtype", DTYPE_BYTES)))
    tile_m: int = field(metadata=named(sizes("tile"), "block tile along {}"))

A token of three fields is declared with the first one. Names and their parser (`NameForms`), columns, the usual
values of optional fields, and what a kernel lacks follow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.errors import DataError, UsageError
from ckh.kernels.table import TRIPLES
from ckh.schema import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ckh.files.jsonfields import Triple

# Pipelines by family, so that a new version needs no change here; a wider pattern would match the following tokens.
PIPELINE = re.compile(
    r"basic(?:_async)?_v[0-9]{1,2}|comp_async|comp_tdm(?:_v[0-9]{1,2})?|compv[0-9]{1,2}|mem|preshufflev[0-9]{1,2}"
    r"|wavelet|flatmm"
)
# A size or count in a name: positive, without leading zeros, and within hardware limits.
NUMBER, MOST = "[1-9][0-9]{0,5}", 999_999

EPILOGUES = ("cshuffle", "default", "tdm")
FLAGS = {"True": True, "1": True, "False": False, "0": False}  # AMD's parser treats 1 as false, which is wrong

_GROUP = "(?P<>"
_VALUES_OF = {name: attrgetter(*names) for name, names in TRIPLES.items()}


class TiledKernel:
    """Base of kernels whose fields include those of `TRIPLES`; in short names some are missing."""

    __slots__ = ()

    dtype: str
    pipeline: str

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the fields that the kernel's short name omits."""
        return tuple([name for name in _required_of(type(self)) if getattr(self, name) is None])

    @property
    def is_complete(self) -> bool:
        """True if no field is missing, so that the kernel can be built."""
        return not self.missing

    @property
    def tile(self) -> Triple:
        """Block tile M, N, K."""
        return self._known("tile", "tile")

    @property
    def wave(self) -> Triple:
        """Waves per block along M, N, K; `UsageError` if the kernel's name omits them."""
        return self._known("wave", "waves")

    @property
    def warp_tile(self) -> Triple:
        """Tile of one matrix instruction M, N, K; `UsageError` if the kernel's name omits it."""
        return self._known("warp_tile", "warp tile")

    @property
    def vectors(self) -> Triple:
        """Vector widths of A, B, C in elements; `UsageError` if the kernel's name omits them."""
        return self._known("vectors", "vector widths")

    @property
    def pads(self) -> tuple[bool | None, bool | None, bool | None]:
        """Padding along M, N, K."""
        pads: tuple[bool | None, bool | None, bool | None] = _VALUES_OF["pads"](self)
        return pads

    @property
    def num_waves(self) -> int:
        """Waves per block; missing ones count as 1."""
        return prod(count or 1 for count in _VALUES_OF["wave"](self))

    @property
    def loop(self) -> tuple[str, Triple, int, str]:
        """Pipeline, tile, waves and element type, which determine its main loop (`pipelines.loop_of`)."""
        return self.pipeline, self.tile, self.num_waves, self.dtype

    def _known(self, name: str, what: str) -> Triple:
        values: Triple = _VALUES_OF[name](self)
        if None in values:
            raise UsageError(
                f"the kernel {self.pipeline} {self.tile} has no {what}",
                "give its complete name",
                code="incomplete-kernel",
            )
        return values


K = TypeVar("K", bound=TiledKernel)


@dataclass(frozen=True, slots=True)
class Token:
    """A part of names, which states the values of fields."""

    what: str
    """Its description, for errors."""
    pattern: str
    """Regular expression with a group `(?P<>...)` for each field."""
    write: Callable[..., str]
    """Returns the text for the fields' values."""
    read: Callable[[str], Any] = str
    """Returns the value of a field for the text of its group."""
    type: type[Any] = str
    """Type of the values: int, bool or str."""
    absent: tuple[Any, ...] = ()
    """The fields' values where a name omits the token; empty: names must have it."""
    words: tuple[str, ...] = ()
    """The values, if they are few."""
    short: Token | None = None
    """Its form in short names, if another."""
    fields: tuple[str, ...] = ()
    """The fields; they follow from the field that declares the token."""
    meaning: str = ""
    """Description of the fields' dataset columns, with {} for M, N or K; empty: they are not columns."""

    def text(self, kernel: object) -> str:
        """Return its text in the name of a kernel."""
        return self.write(*[getattr(kernel, name) for name in self.fields])

    def admits(self, value: object) -> bool:
        """Return whether names can state a value."""
        if self.type is int:
            return type(value) is int and 1 <= value <= MOST
        return type(value) is self.type and (self.type is bool or re.fullmatch(self.pattern, f"_{value}") is not None)


def either(words: Iterable[str]) -> str:
    """Pattern that matches one of the words, preferring longer ones."""
    return "|".join(sorted(words, key=len, reverse=True))


def by(sizes: Iterable[int]) -> str:
    """Format sizes as names have them: MxNxK."""
    return "x".join(map(str, sizes))


def word(what: str, words: Iterable[str], read: Callable[[str], Any] = str) -> Token:
    """Return the token of one of some words."""
    known = tuple(map(str, words))
    return Token(what, f"_{_GROUP}{either(known)})", "_{}".format, read, words=known)


def number(what: str, pattern: str = NUMBER) -> Token:
    """Return the token of a number."""
    return Token(what, f"_{_GROUP}{pattern})", "_{}".format, int, int)


def sizes(what: str) -> Token:
    """Return the token MxNxK."""
    return Token(what, "_" + "x".join([f"{_GROUP}{NUMBER})"] * 3), "_{}x{}x{}".format, int, int)


def flag(what: str) -> Token:
    """Return the token True or False."""
    return Token(what, f"_{_GROUP}{'|'.join(FLAGS)})", lambda value: f"_{bool(value)}", FLAGS.__getitem__, bool)


def mark(what: str, text: str) -> Token:
    """Return a token of names of kernels for which a field is true."""
    return Token(what, f"{_GROUP}_{text})?", lambda value: f"_{text}" if value else "", bool, bool, (False,))


def count(what: str, text: str) -> Token:
    """Return the token of a number behind a mark, which names omit if it is 1."""
    pattern = f"(?:_{text}{_GROUP}{NUMBER}))?"
    return Token(what, pattern, lambda value: f"_{text}{value}" if value != 1 else "", int, int, (1,))


PIPELINE_TOKEN = Token("pipeline", f"_{_GROUP}{PIPELINE.pattern})", "_{}".format)


def named(token: Token, meaning: str = "") -> dict[str, Token]:
    """Return the metadata of a field that states a token, and the meaning of its columns."""
    return {"token": replace(token, meaning=meaning)}


_tokens: dict[type[Any], dict[str, Token]] = {}


def tokens_of(kind: type[Any]) -> dict[str, Token]:
    """Return the tokens that the fields of a class declare, by field, or by the name of the group of three fields."""
    if kind not in _tokens:
        groups = {names[0]: name for name, names in TRIPLES.items()}
        own = _tokens[kind] = {}
        for field in fields(kind):
            token: Token | None = field.metadata.get("token")
            if token is not None:
                is_group = token.pattern.count(_GROUP) > 1
                name = groups[field.name] if is_group else field.name
                own[name] = _of_fields(token, TRIPLES[name] if is_group else (name,))
    return _tokens[kind]


def _of_fields(token: Token, names: tuple[str, ...]) -> Token:
    first, *rest = token.pattern.split(_GROUP)
    pattern = first + "".join(f"(?P<{name}>{part}" for name, part in zip(names, rest, strict=True))
    short = token.short and _of_fields(token.short, names)
    return replace(token, pattern=pattern, fields=names, short=short)


_required: dict[type[Any], tuple[str, ...]] = {}


def _required_of(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields that are `None` only where a short name omits them."""
    if kind not in _required:
        optional = {name for token in tokens_of(kind).values() if None in token.absent for name in token.fields}
        _required[kind] = tuple(field.name for field in fields(kind) if field.name not in optional)
    return _required[kind]


def fields_of(kind: type[Any], of: type[Any]) -> tuple[str, ...]:
    """Return the fields of a type, in order."""
    return tuple(name for token in tokens_of(kind).values() if token.type is of for name in token.fields)


def column_tokens(kind: type[Any]) -> dict[str, Token]:
    """Return the fields that are columns, in order, with their tokens."""
    return {name: token for token in tokens_of(kind).values() if token.meaning for name in token.fields}


def columns_of(kind: type[Any], names: Iterable[str]) -> tuple[Column, ...]:
    """Return fields as columns of datasets."""
    tokens = column_tokens(kind)
    return tuple(
        Column(
            name,
            "string" if tokens[name].type is str else "int64",
            "",
            tokens[name].meaning.format(name[-1].upper()),
        )
        for name in names
    )


def usual_values(kind: type[Any]) -> dict[str, Any]:
    """Return the values of the fields that complete names may omit, where they omit them."""
    tokens = [token for token in tokens_of(kind).values() if token.absent]
    return {name: value for token in tokens for name, value in zip(token.fields, token.absent, strict=True)}


class NameForms(Generic[K]):
    """Complete and short names of a class of kernels.

    Args:
        kind: the class; names begin with its `op_type`.
        operation: pattern of the beginning, for AMD's names too.
        head: tokens that both forms go on with; in short names alone a digit follows them.
        complete: further tokens of complete names, in parts that are made at once.
        short: further tokens of short names.

    Attributes:
        parts: the parts of complete names, each with the fields that it states; the first states all others.
    """

    def __init__(
        self,
        kind: type[K],
        operation: str,
        head: Sequence[str],
        complete: Sequence[Sequence[str]],
        short: Sequence[str],
    ) -> None:
        tokens = tokens_of(kind)
        first = [Token("operation", operation, lambda: str(kind.op_type)), *map(tokens.__getitem__, head)]  # type: ignore[attr-defined]
        parts = [[tokens[name] for name in part] for part in complete]
        self._kind = kind
        self._complete = (*first, *(token for part in parts for token in part))
        self._short = tuple(token.short or token for token in (*first, *(tokens[name] for name in short)))
        self._patterns = re.compile(_pattern(self._complete)), re.compile(_pattern(self._short))
        self._looks_short = re.compile(_pattern(self._short[: len(first)]) + r"_\d")
        self._worded = [place for place, token in enumerate(self._complete) if token.type is str]
        self._known: set[tuple[str, ...]] = set()  # texts of these tokens that were checked
        self.parts: tuple[tuple[tuple[str, ...], Callable[[K], str]], ...] = (
            ((), lambda kernel: _text(first, kernel)),
            *(
                (sum((token.fields for token in part), ()), lambda kernel, part=part: _text(part, kernel))
                for part in parts
            ),
        )
        self.parse = lru_cache(maxsize=16384)(self._parse)
        self.name = lru_cache(maxsize=8192)(self._name)

    def _parse(self, text: str) -> K:
        """Parse ckh's names, AMD's full names and AMD's short names.

        Fields that a short name omits have the class's defaults. Raises `DataError`, which states the invalid part.
        """
        is_short = self._looks_short.match(text) is not None
        tokens = self._short if is_short else self._complete
        match = self._patterns[is_short].fullmatch(text)
        if match is None:
            what = f"not a kernel name of {self._kind.op_type}"  # type: ignore[attr-defined]
            raise DataError(f"{what}: {text!r}, {_not_understood(text, tokens)}", code="bad-kernel")
        values: dict[str, Any] = {}
        for token in tokens:
            texts = [match[name] for name in token.fields]
            is_absent = token.absent and texts[0] is None
            values |= zip(token.fields, token.absent if is_absent else map(token.read, texts), strict=True)
        return self._kind(**values)

    def _name(self, kernel: K, without: tuple[str, ...] = ()) -> str:
        """Return the complete name, or one without the tokens of some fields; `parse` returns exactly this kernel."""
        if not kernel.is_complete:
            raise UsageError(
                f"{self.short(kernel)} is incomplete and has no complete name: it lacks {', '.join(kernel.missing)}",
                "AMD's short names omit parameters: such kernels can be ranked, but not built",
                code="incomplete-kernel",
            )
        texts = [token.text(kernel) for token in self._complete]
        if (worded := tuple([texts[place] for place in self._worded])) not in self._known:
            for place in self._worded:
                _require_known(self._complete[place], texts[place])
            self._known.add(worded)
        if without:
            named = zip(self._complete, texts, strict=True)
            texts = [text for token, text in named if not {*token.fields} & {*without}]
        return "".join(texts)

    def short(self, kernel: K) -> str:
        """Return the short name."""
        return _text(self._short, kernel)


def _text(tokens: Iterable[Token], kernel: object) -> str:
    return "".join([token.text(kernel) for token in tokens])


def _require_known(token: Token, text: str) -> None:
    if re.fullmatch(token.pattern, text) is None:
        known = "one of " + ", ".join(token.words) if token.words else ""
        raise UsageError(f"unknown {token.what} {text.removeprefix('_')!r}", known, code="unknown-name")


def _pattern(tokens: Iterable[Token]) -> str:
    return "".join(token.pattern for token in tokens)


def _not_understood(text: str, tokens: Sequence[Token]) -> str:
    understood = 0
    for place, token in enumerate(tokens, 1):
        match = re.match(_pattern(tokens[:place]), text)
        if match is None:
            return f"its {token.what} is missing or unknown"
        understood = match.end()
    return f"its end {text[understood:]!r} is unknown"
