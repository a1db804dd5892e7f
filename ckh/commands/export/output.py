"""The documents of `ckh export --json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ckh.documents import Document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.commands.export.checked import CheckedFile


class ExportDocument(Document):
    """ckh export --json: exported files."""

    schema = "export"

    out: str
    """The folder."""
    ckh: str
    """Version."""
    to: str
    """The program or format."""
    models: tuple[Mapping[str, Any], ...]
    files: Mapping[str, int]
    """Bytes by name."""
    embedded: bool | None = None
    """Whether C sources hold the models."""


@dataclass(frozen=True, slots=True)
class ExportedChoice:
    """Chosen kernel of a problem."""

    problem: str
    """Canonical text."""
    kernel: str
    """Complete name of the first choice."""
    us: float | None
    """Measured time, or an upper bound of the predicted one, in microseconds; null: unknown."""
    basis: str
    """Source of the time."""
    predicted: bool
    """Whether the time is predicted."""
    model: str | None
    """The model that chose; null: chosen by measurement."""
    arch: str
    written: bool
    """Whether a row was written; false: the program has its own row."""


@dataclass(frozen=True, slots=True)
class MissingChoice:
    """A problem without a row."""

    problem: str
    """Canonical text."""
    reason: str


class ExportChoicesDocument(Document):
    """ckh export --json of problems: choices and exported files."""

    schema = "export_choices"

    out: str
    """The folder."""
    to: str
    """The program."""
    op_type: str
    """The operation."""
    replaces: bool
    """Whether choices replace the program's own rows."""
    choices: tuple[ExportedChoice, ...]
    """Choices in the order of the problems."""
    missing: tuple[MissingChoice, ...]
    """Problems without a row."""
    environment: Mapping[str, str]
    """Environment variables that make the program read the files, in shell syntax; OUT stands for the folder."""
    checked: tuple[CheckedFile, ...] | None
    """Tables as read by the program's own code; null: not checked."""
    files: Mapping[str, int]
    """Bytes by name."""


@dataclass(frozen=True, slots=True)
class DescribedKernels:
    """The kernels of a file."""

    form: Literal["registry", "configuration"]
    kernels: int
    """Kernels of the file that the architecture supports."""


@dataclass(frozen=True, slots=True)
class FallbackList:
    """A fallback list, evaluated on the problems that it was made for."""

    problems: int
    covered: int
    """Problems with an applicable kernel in the list."""
    basis: str
    """Whether efficiencies are measured or predicted."""
    efficiency: float
    """Mean efficiency of the first applicable kernel."""
    single_efficiency: float
    """Mean efficiency of the best single kernels, 0 for problems to which they do not apply."""
    oracle: float
    """Mean efficiency of the best kernel of each problem."""
    single_kernels: tuple[str, ...]
    """Best single kernel of each direction, element type and layout."""


class ExportListsDocument(Document):
    """ckh export --json of kernels for AMD's tools: kernels and exported files."""

    schema = "export_lists"

    out: str
    """The folder."""
    to: str
    """The format."""
    op_type: str
    """The operation."""
    arch: str
    kernels: tuple[str, ...]
    """Complete names, in the order of the lists."""
    described: Mapping[str, DescribedKernels]
    """Kernels of each file."""
    ordered: FallbackList | None
    """The fallback list; null: not requested."""
    files: Mapping[str, int]
    """Bytes by name."""


class ExportRecordsDocument(Document):
    """ckh export --json of measured rows: exported file."""

    schema = "export_records"

    out: str
    """The file."""
    to: str
    """The program."""
    op_type: str
    """The operation."""
    rows: int
    """Measured rows that were read."""
    warnings: tuple[str, ...]
    """Data that the format cannot represent."""
