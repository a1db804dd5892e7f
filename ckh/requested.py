"""`Requested`: how problems of an operation are requested on a command line.

Consists of plain data and functions; `ckh.commands` builds options from it, and quick answers, which import little, use
it too.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ckh.errors import UsageError
from ckh.records import Record
from ckh.text.log import note_once
from ckh.text.prose import shell_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

P = TypeVar("P")
_SAID_TIMES = 1.5  # times the work, from which on a padded problem's are stated


class SizeOption(NamedTuple):
    """An option that describes a problem. Operations share options of the same name and type.

    Attributes:
        name: as a Python name; `split_k` is typed as --split-k.
        help: description, without a full stop.
        default: text of the default value, for the help.
        kind: int or str.
        metavar: placeholder of the value in the help.
        low: minimum value, if the command line checks it.
        high: maximum value.
        spellings: other spellings of values, in lower case, with the value; None: values are not normalized.
        said: what such a spelling means, printed where it is typed.
    """

    name: str
    help: str
    default: str = ""
    kind: type = int
    metavar: str | None = None
    low: int | None = None
    high: int | None = None
    spellings: tuple[tuple[str, str], ...] | None = None
    said: tuple[tuple[str, str], ...] = ()

    def meant(self, value: Any) -> Any:
        """Normalize a spelling, in any case; any other value is returned unchanged."""
        if self.spellings is None or not isinstance(value, str):
            return value
        note_once(dict(self.said).get(value.lower(), ""))
        return dict(self.spellings).get(value.lower(), value.lower())

    @property
    def sentence(self) -> str:
        """Help text with the default."""
        return f"{self.help}." + (f"  [{self.default}]" if self.default else "")


def fields_in_words(problem: Any) -> str:
    """Format all fields of a problem, with their names."""
    return ", ".join(f"{name} {value}" for name, value in problem.to_dict().items())


class Requested(Record, Generic[P]):
    """How problems of an operation are requested.

    Attributes:
        options: all options that describe a problem, in the order of the help.
        problem: builds the problem from options by name, a direction ("" if none was given) and an element type; raises
            `UsageError`.
        words: formats a problem's sizes for readers.
        own: names of options that select this operation if --op is not given.
        has_directions: whether --variant applies to it.
        pool: from the given options and direction, or from all fields of a problem, what candidates depend on besides
            architecture and element type: problems with the same text share a prepared pool.
        default_dtype: element type of problems that do not state it; empty: the architecture's.
        completed: completes a problem whose definition depends on the architecture.
        refused: options that users may expect but no problem of it has: reason, and what to do instead.
        padded: the padded problem that is used if no kernel applies; by default the problem itself.
        kernel: regular expression of kernel names with some of the groups tile, waves, instruction and pipeline; other
            groups are options, shown by the group's name if "True". Empty: names have no such parts.
        notes: further caveats of an answer, as the fields of `Caveat`.
    """

    options: tuple[SizeOption, ...]
    problem: Callable[[Mapping[str, Any], str, str], P]
    words: Callable[[P], str] = fields_in_words
    own: tuple[str, ...] = ()
    has_directions: bool = False
    pool: Callable[[Mapping[str, Any]], str] = lambda _given: ""
    default_dtype: str = ""
    completed: Callable[[P, str], P] = lambda problem, _arch: problem
    padded: Callable[[P], P] = lambda problem: problem
    refused: Mapping[str, tuple[str, str]] = MappingProxyType({})
    kernel: str = ""
    notes: Callable[[Any], Iterable[tuple[Any, ...]]] = lambda _answer: ()

    def strange(self, given: Mapping[str, Any], variant: str) -> str | None:
        """Return a given option that does not apply to the operation, or None."""
        known = {option.name for option in self.options}
        is_strange_direction = bool(variant) and not self.has_directions
        return next((name for name in sorted(given) if name not in known), "variant" if is_strange_direction else None)


def requested_problem(
    op: str, part: Requested[P], given: Mapping[str, Any], variant: str, dtype: str, command: str = "predict"
) -> P:
    """Build the requested problem."""
    if strange := part.strange(given, variant):
        if strange in part.refused:
            reason, hint = part.refused[strange]
            raise UsageError(f"{op} has no {as_option(strange)}: {reason}", hint, code="inapplicable-option")
        raise UsageError(f"{op} has no {as_option(strange)}", f"see ckh {command} --help", code="inapplicable-option")
    return part.problem(given, variant, dtype)


def padded_sizes(problem: Any, padded: Any) -> dict[str, int]:
    """Return the sizes that differ between a padded problem and the requested one."""
    before = problem.to_dict()
    return {name: size for name, size in padded.to_dict().items() if size != before[name]}


def added_work(problem: Any, padded: Any) -> str:
    """Format how many times the work of a problem a padded one has; empty if hardly more."""
    work = padded.flops / problem.flops
    return f", {work:.3g} times the work" if work > _SAID_TIMES else ""


def typed_again(given: Mapping[str, Any]) -> str:
    """Format options by name as a command line."""
    return " ".join(f"{as_option(name)} {shell_word(value)}" for name, value in given.items())


def as_option(name: str) -> str:
    """Format the name of an option as typed."""
    return "--" + name.replace("_", "-")
