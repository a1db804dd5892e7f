"""Sources of shapes, detected by content: built-in models and networks, `config.json`, ONNX, logs, problem tables."""

from __future__ import annotations

import re
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ckh.errors import CkhError, DataError, UsageError
from ckh.files.account import Account
from ckh.files.jsonfields import read_json
from ckh.files.untrusted import GZIP_MAGIC, read_text
from ckh.ops import operation
from ckh.shapes.config import MODELS, ModelKind, is_config
from ckh.shapes.configs import config_layers, config_of, other_parts
from ckh.shapes.layers import Layer
from ckh.shapes.log_convs import graph_shapes, traced_events
from ckh.shapes.logs import (
    ShapeCounts,
    begins_with_problem,
    lines_of,
    read_log,
    statement_mark,
    table_of,
)
from ckh.shapes.shaped import all_parts, networks, shaped_part
from ckh.shapes.tables import is_table, is_unquantised, table_layers
from ckh.strenum import StrEnum
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.shapes.layers import RunOptions

STDIN = "-"
MAX_PIPED_BYTES = 8 << 30
_HEAD_BYTES = 1 << 16
_CONFIG = "config.json"
_OTHER_PARTS = "parts beside the text (trace them with --torch)"
_JSON_LINES = re.compile(r"\s*\{.*\}\s*\n\s*\{")  # a log of objects, one per line
_ONNX_MAGIC = b"\x08"  # the field ir_version
_FOREIGN = ("bad-header", "missing-column", "unknown-format")  # errors of files that are another operation's
_PROBLEM_FILES = (".csv", ".json", ".py")


class SourceKind(StrEnum):
    """Kinds of sources."""

    MODEL = "built-in model"
    NETWORK = "built-in network"
    CONFIG = "config.json"
    TRACE = "trace of PyTorch's profiler"
    GRAPH = "graph of hipDNN"
    ONNX = "ONNX"
    TABLE = "list of shapes"
    UNTUNED = "untuned table"
    LOG = "log"
    TEXTS = "texts of problems"
    MODULE = "PyTorch module"
    PROBLEMS = "problem file"


@dataclass(frozen=True, slots=True)
class Source:
    """A source: its kind, name for messages, and file; `op` has the operation of an untuned table.

    The name of a canonical text without a file is the text.
    """

    kind: SourceKind
    name: str
    path: Path = field(default_factory=Path)
    op: str = ""

    @property
    def is_model(self) -> bool:
        """True if element types are a model's, which a requested type replaces."""
        return self.kind in (SourceKind.MODEL, SourceKind.NETWORK, SourceKind.CONFIG)


@dataclass(frozen=True, slots=True)
class SourceLayers:
    """The layers of a source, and the account of what was read."""

    source: Source
    layers: list[Layer]
    account: Account = field(default_factory=Account)


def ready_names() -> tuple[str, ...]:
    """Names of the built-in models and networks."""
    return (*MODELS, *networks())


def source_of(name: str) -> Source:
    """Source of a name, a path, or - for stdin."""
    path = Path(name)
    if name != STDIN and not path.exists():
        if name in MODELS:
            return Source(SourceKind.MODEL, name)
        if name in networks():
            return Source(SourceKind.NETWORK, name, op=networks()[name][0])
        if begins_with_problem(name):
            return Source(SourceKind.TEXTS, name)
        hint = f"name a file, a folder with a {_CONFIG}, a problem, or a model: {one_of(name, ready_names())}"
        raise UsageError(f"{name!r} is neither a file nor a built-in model", hint, code="no-file")
    if path.is_dir():
        return source_of(str(path / _CONFIG))
    shown = "stdin" if name == STDIN else name
    if name == STDIN or not path.is_file():
        path = Path(f"/proc/self/fd/{_kept(name).fileno()}")
    head = _head(path, shown)
    return Source(_kind(path, head, shown), shown, path, _recogniser(path, head))


@cache
def _kept(name: str) -> BinaryIO:
    """Contents of stdin or a pipe, copied to an unnamed file, so that it can be read again."""
    if name != STDIN and not Path(name).is_fifo():
        raise DataError(f"{name} is not a regular file", "name a file, or pipe it into -", code="unreadable")
    file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
    try:
        with nullcontext(sys.stdin.buffer) if name == STDIN else Path(name).open("rb") as pipe:
            _copy(pipe, file, name)
    except BaseException:
        file.close()
        raise
    return file


def _copy(pipe: BinaryIO, file: BinaryIO, name: str) -> None:
    while part := pipe.read(_HEAD_BYTES):
        file.write(part)
        if file.tell() > MAX_PIPED_BYTES:
            raise DataError(f"{name} has more than {MAX_PIPED_BYTES >> 30} GiB", "name a file", code="too-large")
    file.flush()


def _head(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror}", code="unreadable") from error
    if not head.strip():
        raise DataError(f"{name} is empty", code="empty")
    return head


def _kind(path: Path, head: bytes, name: str) -> SourceKind:
    if path.suffix != ".onnx" and b"\0" in head and not head.startswith(_ONNX_MAGIC):
        hint = f"unpack it: zcat {name} | ckh shapes -" if head.startswith(GZIP_MAGIC) else ""
        raise DataError(f"{name} is neither text nor an ONNX model", hint, code="unknown-format")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    lines = _text(head)
    suffix = path.suffix.lower()
    has_marks = any(map(statement_mark().search, head.splitlines())) or table_of(lines.partition("\n")[0]) is not None
    tests = (
        (suffix == ".onnx" or b"\0" in head, SourceKind.ONNX),
        (text.startswith(b"{") and b'"traceEvents"' in head, SourceKind.TRACE),
        (text.startswith(b"{") and b'_tensor_uid"' in head, SourceKind.GRAPH),
        (text.startswith(b"{") and not _JSON_LINES.match(lines), SourceKind.CONFIG),
        (is_table(lines) or is_unquantised(path, lines), SourceKind.TABLE),
        (bool(_recogniser(path, head)), SourceKind.UNTUNED),
        (not has_marks and (text.startswith(b"[") or suffix in _PROBLEM_FILES), SourceKind.PROBLEMS),
        (not has_marks and (suffix == ".txt" or begins_with_problem(lines)), SourceKind.TEXTS),
        (True, SourceKind.LOG),
    )
    return next(kind for holds, kind in tests if holds)


def _text(head: bytes) -> str:
    return head.decode("utf-8-sig", "replace")


def _recogniser(path: Path, head: bytes) -> str:
    """The operation whose untuned table a file is; empty if it is not one."""
    text = _text(head)
    return next((name for name, part in all_parts().items() if part.recognises(path, text)), "")


def found_in(source: Source, wanted: RunOptions, op: str = "") -> SourceLayers:
    """The layers of a source."""
    match source.kind:
        case SourceKind.MODEL:
            return _model(source, MODELS[source.name][1], wanted)
        case SourceKind.NETWORK:
            return SourceLayers(source, _network_layers(source, wanted))
        case SourceKind.CONFIG:
            return _config(source, wanted)
        case SourceKind.ONNX:
            from ckh.shapes.onnx_model import onnx_layers

            return SourceLayers(source, *onnx_layers(source.path, source.name, wanted))
        case SourceKind.PROBLEMS | SourceKind.UNTUNED:
            return _problem_layers(source, source.op or op, wanted)
        case _:
            return _tallied(source, wanted)


def _config(source: Source, wanted: RunOptions) -> SourceLayers:
    document = read_json(source.path)
    if not is_config(document):
        raise DataError(
            f"{source.name}: a JSON object that is not a model's {_CONFIG}: it has no model_type",
            "name a Hugging Face config.json",
            code="unknown-format",
        )
    return _model(source, document, wanted)


def _model(source: Source, document: Mapping[str, Any], wanted: RunOptions) -> SourceLayers:
    layers = list(config_layers(document, source.name, wanted))
    account = Account(used=len(layers))
    if parts := other_parts(document):
        account.leave_out(_OTHER_PARTS, count=len(parts))
    return SourceLayers(source, layers, account)


def has_tokens(source: Source) -> bool:
    """True if a source is a model whose products are listed for each number of tokens."""
    if source.kind not in (SourceKind.MODEL, SourceKind.CONFIG):
        return False
    document = MODELS[source.name][1] if source.kind is SourceKind.MODEL else read_json(source.path)
    return config_of(document, source.name).family.kind in (ModelKind.DECODER, ModelKind.SPEECH)


def _network_layers(source: Source, wanted: RunOptions) -> list[Layer]:
    op, layers = networks()[source.name]
    part = shaped_part(op)
    assert part is not None, "it has the network"
    shapes: list[tuple[int, Any]] = [
        (number, part.shape(layer)) for batch in wanted.batch for number, layer in enumerate(layers(batch), 1)
    ]
    return [Layer(f"conv{number}", replace(shape, dtype="", variant=""), 1, source.name) for number, shape in shapes]


def _problem_layers(source: Source, op: str, wanted: RunOptions) -> SourceLayers:
    """Problems of a file, read by the named operation, or by the first that can.

    Rows without element type or direction get the requested ones, those of untuned tables their operation's.
    """
    default_dtype = filter(None, [None if source.op else wanted.dtype])
    errors: list[CkhError] = []
    for name in [op] if op else all_parts():
        owner, account = operation(name), Account(wanted.strict)
        variant = wanted.variant if owner.has_directions else None
        try:
            problems = owner.problems.load(str(source.path), variant, None, *default_dtype, account=account)
        except CkhError as error:
            errors.append(error)
            continue
        layers = [Layer("", problem, account.counts[problem] or 1, source.name, name) for problem in problems]
        return SourceLayers(source, layers, account)
    raise next((error for error in errors if error.code not in _FOREIGN), errors[0])


def reader_of(path: Path) -> str | None:
    """The operation with the most of a problem file's columns that reads it, or would if its values were right."""
    head = set(re.split(r"[,;\t]", read_text(path).partition("\n")[0].lower()))
    readers: dict[str, int] = {}
    for name in all_parts():
        try:
            operation(name).problems.load(str(path), None, None)
        except CkhError as error:
            if error.code in _FOREIGN:
                continue
        readers[name] = len(head & {size.lower() for size in operation(name).problems.sizes})
    return max(readers, key=readers.__getitem__, default=None)


def _tallied(source: Source, wanted: RunOptions) -> SourceLayers:
    tally = ShapeCounts(wanted)
    if source.kind is SourceKind.TABLE:
        for table_layer in table_layers(source.path, source.name, tally.account.refuse):
            key = tally.add(table_layer.name, table_layer.shape, table_layer.count, table_layer.where, table_layer.op)
            tally.add_time(key, table_layer.time)
            tally.account.use()
    elif source.kind is SourceKind.GRAPH:
        for stated in graph_shapes(read_json(source.path), source.name):
            if isinstance(stated, str):
                tally.account.leave_out(stated)
            else:
                tally.add_stated(stated, source.name)
                tally.account.use()
    elif source.path == Path():
        read_log([source.name.encode()], source.name, wanted, tally)
    else:
        with source.path.open("rb") as file:
            lines = traced_events if source.kind is SourceKind.TRACE else lines_of
            read_log(lines(file), source.name, wanted, tally)
    return SourceLayers(source, tally.layers(), tally.account)
