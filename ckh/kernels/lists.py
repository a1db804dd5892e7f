"""Lists of kernels in files of AMD's tools: a registry's exact list, or a configuration that describes a product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rules
    from ckh.kernels.table import KernelTable

K = TypeVar("K")
MOST_COMBINATIONS = 1 << 21  # of one group: AMD's largest configuration has 622,080


@dataclass(frozen=True, slots=True, eq=False)
class KernelProduct(Generic[K]):
    """The kernels that a configuration describes: all combinations of its values.

    Attributes:
        rules: the rules of these kernels.
        table: the combinations for an architecture and a group of problems, without values that the architecture does
            not list; empty for groups that the configuration is not for.
        groups: the groups of an element type.
        count: number of combinations of a group.
    """

    rules: Rules[K]
    table: Callable[..., KernelTable[K]]
    groups: Callable[[str], Sequence[tuple[Any, ...]]]
    count: int

    def built(self, arch: ArchSpec, dtype: str) -> tuple[K, ...]:
        """The kernels of an element type that the architecture builds."""
        tables = [self.table(arch, *group) for group in self.groups(dtype)]
        return tuple(kernel for one in tables for kernel in one.take(self.rules.judge(one, arch).passed))


@dataclass(frozen=True, slots=True, eq=False)
class RuleSets(Generic[K]):
    """Named sets of kernels, each for the kind of a problem and an architecture.

    Attributes:
        names: their names.
        of: the kernels of a set, given its name, a problem and an architecture; raises `UsageError` for another name.
    """

    names: tuple[str, ...]
    of: Callable[[str, Any, ArchSpec], tuple[K, ...]]


@dataclass(frozen=True, slots=True)
class Registry(Generic[K]):
    """The kernels of a file, in its order, and the name of the architecture they are for.

    Attributes:
        arch: the architecture; empty if the file states none.
        kernels: the kernels of an exact list.
        product: what a configuration describes instead of a list.
    """

    arch: str
    kernels: tuple[K, ...]
    product: KernelProduct[K] | None = None

    def require(self, arch: str) -> None:
        """Refuse the kernels of another architecture.

        Raises:
            UsageError: they are.
        """
        if self.arch not in ("", arch):
            raise UsageError(f"the registry is for {self.arch}, not {arch}", code="mismatch")

    def built(self, arch: ArchSpec, dtype: str) -> tuple[K, ...]:
        """The kernels: the list as it is, or those of a configuration that the architecture builds."""
        return self.kernels if self.product is None else self.product.built(arch, dtype)


@dataclass(frozen=True, slots=True)
class WrittenList:
    """A file of kernels.

    Attributes:
        content: what is written.
        kernels: how many kernels it describes, of which the architecture builds all.
        form: "registry" if it lists kernels, "configuration" if it describes their product.
    """

    content: bytes
    kernels: int
    form: str


@dataclass(frozen=True, slots=True, eq=False)
class ListFormat:
    """AMD's forms of lists of an operation's kernels.

    Attributes:
        recognises: whether a document is in one of these forms, of whatever operation.
        read: the kernels of such a document; raises `DataError`.
        rules: the rules of the kernels.
        write: the files of a list of kernels for an architecture, given what to call the list.
    """

    recognises: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Path, dict[str, Any]], Registry[Any]]
    rules: Rules[Any]
    write: Callable[[Sequence[Any], ArchSpec, str], dict[str, WrittenList]]


def values_of(values: Any) -> list[Any] | None:
    """The values of a parameter in AMD's configurations: a range with min, max and step, or a list; None: neither."""
    if isinstance(values, list):
        return values
    if not isinstance(values, dict):
        return None
    if values.keys() == {"values"} and isinstance(values["values"], list):
        return values["values"]
    if {"min", "max"} <= values.keys() <= {"min", "max", "step"}:
        low, high, step = values["min"], values["max"], values.get("step", 1)
        if all(type(number) is int for number in (low, high, step)) and step > 0 and high - low < step << 10:
            return list(range(low, high + 1, step))
    return None
