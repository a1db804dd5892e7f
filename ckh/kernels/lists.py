"""Kernel lists in files of AMD's tools: a registry's exact list, or a configuration that describes a product."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ckh.errors import DataError, UsageError
from ckh.files.account import Account
from ckh.files.jsonfields import JsonFields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rules
    from ckh.kernels.table import KernelTable

K = TypeVar("K")
MOST_COMBINATIONS = 1 << 21  # per group: AMD's largest configuration has 622,080


@dataclass(frozen=True, slots=True, eq=False)
class KernelProduct(Generic[K]):
    """The kernels that a configuration describes: all combinations of its values."""

    rules: Rules[K]
    table: Callable[..., KernelTable[K]]
    """The combinations for an architecture and a group of problems, without values that the architecture does not
    list; empty for groups outside the configuration."""
    groups: Callable[[str], Sequence[tuple[Any, ...]]]  # the groups of an element type
    count: int  # number of combinations of a group

    def built(self, arch: ArchSpec, dtype: str) -> tuple[K, ...]:
        """Return the kernels of an element type that the architecture builds."""
        tables = [self.table(arch, *group) for group in self.groups(dtype)]
        return tuple(kernel for table in tables for kernel in table.take(self.rules.judge(table, arch).passed))


@dataclass(frozen=True, slots=True, eq=False)
class RuleSets(Generic[K]):
    """Named sets of kernels, each for the kind of a problem and an architecture."""

    names: tuple[str, ...]
    of: Callable[[str, Any, ArchSpec], tuple[K, ...]]
    """The kernels of a set, given its name, a problem and an architecture; raises `UsageError` for another name."""


@dataclass(frozen=True, slots=True)
class Registry(Generic[K]):
    """The kernels of a file, in its order, and the name of their architecture."""

    arch: str  # the architecture; empty if the file has none
    kernels: tuple[K, ...]  # the kernels of an exact list
    product: KernelProduct[K] | None = None  # the product described by a configuration, instead of a list

    def require(self, arch: str) -> None:
        """Refuse kernels of another architecture."""
        if self.arch not in ("", arch):
            raise UsageError(f"the registry is for {self.arch}, not {arch}", code="mismatch")

    def built(self, arch: ArchSpec, dtype: str) -> tuple[K, ...]:
        """Return the list unchanged, or the kernels of a configuration that the architecture builds."""
        return self.kernels if self.product is None else self.product.built(arch, dtype)


@dataclass(frozen=True, slots=True)
class WrittenList:
    """A file of kernels."""

    content: bytes
    kernels: int  # number of kernels it describes, all of which the architecture builds
    form: str  # "registry" if it lists kernels, "configuration" if it describes their product


@dataclass(frozen=True, slots=True, eq=False)
class ListFormat:
    """AMD's file formats for lists of an operation's kernels."""

    read: Callable[[Path, dict[str, Any]], Registry[Any]]  # reads the kernels of such a document; raises `DataError`
    write: Callable[[Sequence[Any], ArchSpec, str], dict[str, WrittenList]]
    """Writes the files of a list of kernels for an architecture, given a name for the list."""


def recognises(document: Mapping[str, Any]) -> bool:
    """Return whether a document is a registry, instances or a configuration, of any operation."""
    is_registry = "kernels" in document and bool(document.keys() & {"name", "metadata"})
    return is_registry or "instances" in document or "trait_config" in document


def listed(
    path: Path,
    document: Mapping[str, Any],
    name: str,
    read: Callable[[JsonFields], tuple[Any, str]],
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> Registry[Any]:
    """Return the distinct kernels of a document's list, which must be of one architecture and one element type.

    `read` returns the kernel of an entry, completed by `defaults`, and its architecture, which may be empty. Entries
    that it refuses are left out with a warning, unless it refuses all.
    """
    entries = document.get(name)
    if not isinstance(entries, list) or not entries:
        JsonFields(path, document).fail(name, "must be a list of at least one kernel")
    kernels: dict[Any, str] = {}
    account = Account()
    for number, entry in enumerate(entries):
        where = f"{name}[{number}]"
        try:
            kernel, arch = read(
                JsonFields(path, {**defaults, **entry} if isinstance(entry, dict) else entry, f"{where}.")
            )
        except DataError as error:
            message = error.message.removeprefix(f"{path}: {where}.")
            account.refuse(DataError(message, error.hint, code=error.code), f"{path}: {where}")
            continue
        account.use()
        first, first_arch = next(iter(kernels.items()), (kernel, arch))
        file = JsonFields(path, document)
        if arch != first_arch:
            file.fail(f"{where}.arch", f"is {arch}, the first kernel's is {first_arch}: split the file by GPU")
        if kernel.dtype != first.dtype:
            file.fail(where, f"is {kernel.dtype}, the first kernel {first.dtype}: split the file")
        kernels.setdefault(kernel, arch)
    account.settle(str(path))
    account.report(str(path))
    return Registry(next(iter(kernels.values())), tuple(kernels))


def configured(file: JsonFields, name: str, product: KernelProduct[K], arch: str = "") -> Registry[K]:
    """Return the kernels that a configuration describes, for an architecture or any, if they are not too many."""
    if product.count > MOST_COMBINATIONS:
        file.fail(name, f"describes {product.count} kernels, ckh reads up to {MOST_COMBINATIONS}")
    return Registry(arch, (), product)


def written_lists(
    kernels: Sequence[K],
    words_of: Callable[[K], str],
    registry: Callable[[Sequence[K]], object],
    configuration: Callable[[Sequence[K]], tuple[object, int] | None],
) -> dict[str, WrittenList]:
    """Return, for the kernels of each text, a registry and the smallest configuration.

    `configuration` returns the document and the number of kernels that it describes; None: it cannot describe them.
    """
    groups: dict[str, list[K]] = {}
    for kernel in kernels:
        groups.setdefault(words_of(kernel), []).append(kernel)
    files = {}
    for words, group in groups.items():
        files[f"registry_{words}.json"] = WrittenList(_json_bytes(registry(group)), len(group), "registry")
        if (described := configuration(group)) is not None:
            document, count = described
            files[f"config_{words}.json"] = WrittenList(_json_bytes(document), count, "configuration")
    return files


def read_values(part: JsonFields, name: str, is_known: Callable[[Any], bool], known: Sequence[Any] = ()) -> list[Any]:
    """Return the distinct values of a parameter of AMD's configurations, a list or a range; fail on unknown ones."""
    values = _values_of(part.value(name))
    if not values:
        part.fail(name, "must be a list of values, or a range with min, max and step")
    for value in values:
        if not is_known(value):
            choices = f", not one of {', '.join(map(str, known))}" if known else ""
            part.fail(name, f"has the unknown value {value!r}{choices}")
    return list(dict.fromkeys(values))


def _json_bytes(document: object) -> bytes:
    """Return the content of a JSON file, as AMD's tools format theirs."""
    return (json.dumps(document, indent=2) + "\n").encode()


def _values_of(values: Any) -> list[Any] | None:
    """Values of a parameter in AMD's configurations: a range (min, max, step) or a list; None if it is neither."""
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
