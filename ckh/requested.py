"""`Requested`: how the problems of an operation are requested on a command line.

It is plain data and functions, of which `ckh.commands` makes options; quick answers, which import little, use it too.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ckh.errors import UsageError
from ckh.records import Record
from ckh.text.prose import shell_word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = TypeVar("P")


class SizeOption(NamedTuple):
    """An option that says something of a problem. Operations that have one of the same name share it, and its type.

    Attributes:
        name: as a Python name; `split_k` is typed as --split-k.
        help: what it is, without a full stop.
        default: what stands for it where it is left out, for the help.
        kind: int or str.
        metavar: what the help shows for its value.
        low: the least value, if the command line is to refuse others.
        high: the greatest.
        spellings: other spellings of values, in lower case, with the value; None: values are not looked up.
    """

    name: str
    help: str
    default: str = ""
    kind: type = int
    metavar: str | None = None
    low: int | None = None
    high: int | None = None
    spellings: tuple[tuple[str, str], ...] | None = None

    def meant(self, value: Any) -> Any:
        """The value of another spelling of it, in any case; any other value is returned as it is."""
        if self.spellings is None or not isinstance(value, str):
            return value
        return dict(self.spellings).get(value.lower(), value.lower())

    @property
    def sentence(self) -> str:
        """Help text with the default."""
        return f"{self.help}." + (f"  [{self.default}]" if self.default else "")


def fields_in_words(problem: Any) -> str:
    """All fields of a problem, with their names."""
    return ", ".join(f"{name} {value}" for name, value in problem.to_dict().items())


def _as_it_is(problem: P, _arch: str) -> P:
    return problem


def _not_padded(problem: P) -> P:
    return problem


def _one_pool(_given: Mapping[str, Any]) -> str:
    return ""


class Requested(Record, Generic[P]):
    """How problems of an operation are requested.

    Attributes:
        options: all that say something of a problem, in the order of the help.
        problem: the problem that options say, of those given by name, a direction ("" if none was given) and an
            element type; raises `UsageError`.
        words: a problem's sizes, as people write them.
        own: names of options that mean this operation where --op is left out.
        has_directions: whether --variant goes with it.
        pool: of options and direction given, or of all fields of a problem, what candidates depend on besides
            architecture and element type: problems with one text are answered by one prepared pool.
        default_dtype: element type of problems that state none; empty: the architecture's.
        completed: a problem on an architecture, where one may leave something open to that.
        refused: options of none of its problems that are looked for: why, and what to do instead.
        padded: the problem that answers where no kernel applies to one as it is: with sizes rounded up; itself without.
        kernel: regular expression of kernels' names with some of the groups tile, waves, instruction and pipeline; the
            others are options, of which "True" means the group's name. Empty: names have no such parts.
    """

    options: tuple[SizeOption, ...]
    problem: Callable[[Mapping[str, Any], str, str], P]
    words: Callable[[P], str] = fields_in_words
    own: tuple[str, ...] = ()
    has_directions: bool = False
    pool: Callable[[Mapping[str, Any]], str] = _one_pool
    default_dtype: str = ""
    completed: Callable[[P, str], P] = _as_it_is
    padded: Callable[[P], P] = _not_padded
    refused: Mapping[str, tuple[str, str]] = MappingProxyType({})
    kernel: str = ""

    def strange(self, given: Mapping[str, Any], variant: str) -> str | None:
        """An option that was given and does not go with the operation, if there is one."""
        known = {option.name for option in self.options}
        is_strange_direction = bool(variant) and not self.has_directions
        return next((name for name in sorted(given) if name not in known), "variant" if is_strange_direction else None)


def requested_problem(
    op: str, part: Requested[P], given: Mapping[str, Any], variant: str, dtype: str, command: str = "predict"
) -> P:
    """The problem that was requested.

    Args:
        op: the operation's name.
        part: how its problems are requested.
        given: the options that were given, by name.
        variant: the direction; empty if none was given.
        dtype: the element type.
        command: the one whose help is referred to.

    Raises:
        UsageError: it is impossible, or an option does not go with the operation.
    """
    if strange := part.strange(given, variant):
        if strange in part.refused:
            reason, hint = part.refused[strange]
            raise UsageError(f"{op} has no {as_option(strange)}: {reason}", hint, code="inapplicable-option")
        raise UsageError(f"{op} has no {as_option(strange)}", f"see ckh {command} --help", code="inapplicable-option")
    return part.problem(given, variant, dtype)


def padded_sizes(problem: Any, padded: Any) -> dict[str, int]:
    """The sizes in which a padded problem differs from the one that was requested."""
    before = problem.to_dict()
    return {name: size for name, size in padded.to_dict().items() if size != before[name]}


def typed_again(given: Mapping[str, Any]) -> str:
    """Options by name, as they are typed."""
    return " ".join(f"{as_option(name)} {shell_word(value)}" for name, value in given.items())


def as_option(name: str) -> str:
    """How an option of a name is typed."""
    return "--" + name.replace("_", "-")
