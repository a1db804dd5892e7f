"""`ckh shapes`: the problems of models, modules and logs, as a weighted list."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, OP_HELP, completed, examples, print_json, print_table, say
from ckh.documents import Document
from ckh.errors import UsageError
from ckh.ops import operation
from ckh.problems import Direction
from ckh.shapes.layers import DEFAULT_TOKENS, MAX_LIST, WORKLOADS, RunOptions, require_sizes, token_options
from ckh.text.log import emit, note, notes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.shapes.layers import WeightedProblem
    from ckh.shapes.problems import ShapesFound

_MAX_TP, _MAX_DIGITS = 1024, 20
_TOKENS = ",".join(map(str, DEFAULT_TOKENS))
_HELP = """List the problems of a model, a module or a log, with counts and layers.

Sources are recognized by content: Hugging Face config.json or its folder (language models, ViT, CLIP, Whisper), ONNX,
built-in models and networks, which are listed without a source, AITER's untuned tables, logs and profiles:
MIOPEN_ENABLE_LOGGING_CMD and MIOpenDriver lines, hipblaslt-bench and rocblas-bench lines, PyTorch's TunableOp files,
AITER's and vLLM's lines of missing configurations, rocprof tables where kernels' names carry M, N and K; problem files;
- is stdin. --torch traces a PyTorch module on the meta device.

GEMMs of language models are those of one of --tp ranks, with fused projections, for each number of --tokens: sequences
of a decode step, or tokens of a prefill, which may have weights (--tokens 1:2000,64:200,8192:1), as a server runs many
decode steps per prefill (--workload mixed). Attention's own products are left out, with their share. --batch is the
number of images, clips or samples of networks and encoders.

The output is a table at a terminal, else CSV for --problems, which also reads all sources directly. With --table, the
missed lookups in AITER's log are compared with a tuned table, and the nearest keys are shown.
"""


@dataclass(frozen=True, slots=True)
class ShapeEntry:
    """A problem of a source."""

    op: str
    """Operation."""
    problem: str
    """Complete text of the problem."""
    count: int
    """Number of executions."""
    layers: tuple[str, ...]
    """Names of layers or kernels; empty if the source has none."""
    share: float
    """Share of all floating-point operations, from 0 to 1."""
    stated_ms: float | None
    """Least time that the source states, in ms; null: none."""
    stated_of: str | None
    """Kernel, solver or library that took it, as the source names it."""


@dataclass(frozen=True, slots=True)
class MissEntry:
    """The row of a tuned table nearest to a missing key."""

    problem: str
    """Complete text of the problem."""
    count: int
    """Number of lookups."""
    key: Mapping[str, str] | None
    """Nearest row's key by column; null: no row is near."""
    differs: Mapping[str, str]
    """Looked-up values of the columns that differ."""
    why: str
    """Reason of the miss."""


class ShapesDocument(Document):
    """ckh shapes --json: problems of a model, a module or a log."""

    schema = "shapes"

    sources: tuple[str, ...]
    """Sources."""
    problems: list[ShapeEntry]
    """Problems in the order of the source, or with weights by their share."""
    weights: Mapping[str, int]
    """How often each number of tokens runs; empty: the sources have none."""
    bad: Mapping[str, int]
    """Entries of the sources that ckh does not understand: how many for each reason, with the first."""
    left_out: Mapping[str, int]
    """Entries and layers that ckh knows and leaves out: how many for each reason."""
    left_out_work: tuple[str, ...]
    """What is left out, with its share of the work, and the operation that takes it."""
    changes: tuple[str, ...]
    """Element types, layouts and scales that differ from those of the sources."""
    out: str | None = None
    """Output file."""
    misses: list[MissEntry] | None = None
    """With --table: reasons of missed lookups."""


@dataclass(frozen=True, slots=True)
class ReadyEntry:
    """A built-in model or network."""

    name: str
    """Name, as a source."""
    of: str
    """Repository on Hugging Face, or the operation of a network's layers."""
    options: tuple[str, ...]
    """Options that its shapes depend on."""


class ReadyDocument(Document):
    """ckh shapes --json without a source: built-in models and networks."""

    schema = "shapes_ready"

    ready: list[ReadyEntry]
    """Models, then networks."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="shapes",
        help=_HELP,
        epilog=examples(
            "ckh shapes config.json --tp 8",
            "ckh shapes llama3-70b --tp 8 --tokens 1,64,4096 --out shapes.csv",
            "ckh shapes llama3-70b --tp 8 --workload mixed",
            "ckh shapes config.json --tp 8 | ckh predict --problems - --top 1",
            "ckh shapes deepseek-v3 --tp 8 --fuse-shared --op aiter_moe",
            "ckh shapes resnet50 --batch 1,32",
            "ckh shapes model.onnx --batch 8 --image 224x224",
            "ckh shapes --torch my_package.models:resnet",
            "ckh shapes miopen.log server.log --strict --out shapes.csv",
            "ckh shapes server.log --table a8w8_tuned_gemm.csv --arch gfx942",
            "ckh shapes",
        ),
    )(shapes)


def shapes(
    sources: list[str] | None = typer.Argument(
        None, metavar="[SOURCE]...", autocompletion=_completion.sources, help="Files, folders, built-in models, or -."
    ),
    tp: int = typer.Option(1, "--tp", min=1, max=_MAX_TP, metavar="N", help="Ranks of tensor parallelism."),
    ep: int = typer.Option(1, "--ep", min=1, max=_MAX_TP, metavar="N", help="Ranks that have whole experts."),
    tokens: str | None = typer.Option(
        None,
        "--tokens",
        metavar="N[:TIMES][,…]",
        help=f"Rows of a language model's GEMMs, and how often they run.  [{_TOKENS}]",
    ),
    workload: str | None = typer.Option(
        None, "--workload", metavar="[" + "|".join(WORKLOADS) + "]", help="Rows and weights of a workload."
    ),
    batch: str = typer.Option("1", "--batch", metavar="N[,N…]", help="Images, clips or samples at a time."),
    image: str = typer.Option("", "--image", metavar="HxW", help="Sizes that an ONNX model leaves open in its images."),
    dtype: str | None = completed(
        "dtype", "Element type instead of the model's; for logs, the element type of the lines to keep."
    ),
    op: str | None = completed("op", f"{OP_HELP}  [each shape's own]"),
    variant: Direction | None = typer.Option(
        None, "--variant", help="Direction of convolutions without one; others are skipped.  [forward, and all]"
    ),
    torch: str | None = typer.Option(
        None, "--torch", metavar="PKG.MODULE:FACTORY", help="Function that returns a PyTorch module and its inputs."
    ),
    fuse_shared: bool = typer.Option(
        False, "--fuse-shared", help="Treat shared experts as additional routed experts, as AITER can."
    ),
    table: list[Path] = typer.Option([], "--table", help="AITER's tuned table or its folder, to explain misses."),
    arch: str = completed("arch", "--table: architecture or GPU of the lookups, e.g. mi308x.", default="gfx942"),
    out: Path | None = typer.Option(None, "--out", "-o", help="CSV file to write."),
    force: bool = typer.Option(False, "--force", help="Replace a list of shapes in --out."),
    strict: bool = typer.Option(False, "--strict", help="Exit code 4 for an entry that ckh does not understand."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Read the sources and print or write their problems."""
    names = sources or []
    if not names and torch is None:
        _print_ready(as_json=as_json)
        return
    if out is not None:
        from ckh.files.outputs import check_output
        from ckh.shapes.tables import SHAPES

        check_output(out, SHAPES, force=force, inputs=[Path(name) for name in names])
    wanted = RunOptions(
        tp=tp,
        ep=ep,
        **token_options(tokens, workload),
        batch=tuple(dict.fromkeys(_sizes("--batch", batch, ",", "1,32"))),
        image=_sizes("--image", image, "x", "224x224") if image else (),
        dtype=dtype,
        fuse_shared=fuse_shared,
        strict=strict,
        variant=None if variant is None else str(variant),
    )
    reading = _found(names, torch, wanted, None if op is None else operation(op).name)
    changes = (*sorted(notes()), *reading.changes)
    reading.report()
    misses = _misses(reading, table, arch) if table else None
    if out is not None:
        from ckh.files.outputs import write_output
        from ckh.shapes.tables import table_text

        write_output(out, table_text(reading.problems).encode())
    if as_json:
        document = ShapesDocument(
            sources=(*names, *([torch] if torch else [])),
            problems=_entries(reading.problems),
            weights={str(number): times for number, times in reading.weights.items()},
            bad=reading.account.named(reading.account.bad),
            left_out=reading.left_out,
            left_out_work=reading.left_words,
            changes=changes,
            out=None if out is None else str(out),
            misses=misses,
        )
        print_json(document)
    elif misses is not None:
        for miss in misses:
            say(f"{miss.problem} ({miss.count} times): {miss.why}")
            if miss.key is not None:
                say("  nearest key: " + " ".join(f"{name}={value}" for name, value in miss.key.items()))
    else:
        _print(reading.problems, out)


def _sizes(option: str, text: str, between: str, example: str) -> tuple[int, ...]:
    """Sizes of an option, in order."""
    parts = [part.strip() for part in text.split(between)]
    if not all(part.isdecimal() and len(part) <= _MAX_DIGITS for part in parts) or len(parts) > MAX_LIST:
        raise UsageError(f"{option} {text!r:.80} is no list of sizes", f"e.g. {option} {example}", code="bad-number")
    require_sizes((option, int(part)) for part in parts)
    return tuple(map(int, parts))


def _found(names: Sequence[str], torch: str | None, wanted: RunOptions, op: str | None) -> ShapesFound:
    from ckh.shapes.problems import shapes_of, weighted

    if torch is None:
        return shapes_of(names, wanted, op)
    from ckh.files.account import Account
    from ckh.shapes.modules import traced_factory
    from ckh.shapes.problems import found_in_all
    from ckh.shapes.sources import Source, SourceKind, SourceLayers

    layers, left_out = traced_factory(torch)
    account = Account(used=len(layers), known=left_out)
    module = SourceLayers(Source(SourceKind.MODULE, torch), layers, account)
    return weighted([*found_in_all(names, wanted, op), module], wanted, op)


def _entries(problems: Sequence[WeightedProblem]) -> list[ShapeEntry]:
    whole = sum(problem.flops for problem in problems)
    return [
        ShapeEntry(
            *(problem.op, problem.problem.canonical(), problem.count, problem.layers, problem.flops / whole),
            *(problem.time or (None, None)),
        )
        for problem in problems
    ]


def _print(problems: Sequence[WeightedProblem], out: Path | None) -> None:
    from ckh.shapes.tables import table_text

    if out is None and not sys.stdout.isatty():
        emit(table_text(problems))
        return
    has_times = any(problem.time for problem in problems)
    names = ("problem", "layers", "count", "work", *(("stated ms", "of") if has_times else ()))
    rows = [
        [
            *(entry.problem, " ".join(entry.layers), str(entry.count), f"{100 * entry.share:.1f} %"),
            *(f"{entry.stated_ms:.4g}" if entry.stated_ms else "", entry.stated_of or ""),
        ][: len(names)]
        for entry in _entries(problems)
    ]
    print_table("" if out is None else str(out), names, rows)
    if out is not None:
        from ckh.text.prose import shell_word

        ops = dict.fromkeys(problem.op for problem in problems)
        say("\n" + "\n".join(f"next: ckh predict --op {name} --problems {shell_word(out)} --top 1" for name in ops))


def _misses(reading: ShapesFound, tables: Sequence[Path], arch: str) -> list[MissEntry]:
    """Nearest key of each lookup, for operations whose program has tuned tables, whose rows are counted too."""
    from ckh.archs import meant_gpu
    from ckh.shapes.misses import read_tables
    from ckh.shapes.shaped import MissedLookup, shaped_part

    name, cus = meant_gpu(arch)
    rows = read_tables(tables, reading.account)
    miss_entries: list[MissEntry] = []
    for problem in reading.problems:
        part = shaped_part(problem.op)
        if part is None or part.nearest is None:
            continue
        for stated in problem.stated or ((),):
            near = part.nearest(MissedLookup(problem.problem, dict(stated), name, cus), rows)
            miss_entries.append(
                MissEntry(problem.problem.canonical(), problem.count, near.key or None, near.differs, near.why)
            )
    if not miss_entries:
        raise UsageError(
            "--table needs AITER's GEMMs or mixtures of experts, and the sources have none",
            "omit it",
            code="inapplicable-option",
        )
    return miss_entries


def _print_ready(*, as_json: bool) -> None:
    from ckh.shapes.config import MODELS
    from ckh.shapes.shaped import networks

    decoder = ("--tp", "--tokens")
    ready = [
        ReadyEntry(
            name,
            source,
            ("--tp", "--batch") if "num_hidden_layers" not in fields or "image_size" in fields else decoder,
        )
        for name, (source, fields) in MODELS.items()
    ]
    ready += [ReadyEntry(name, op, ("--batch",)) for name, (op, _) in networks().items()]
    if as_json:
        print_json(ReadyDocument(ready=ready))
        return
    print_table(
        "",
        ("name", "of", "options"),
        [[model.name, model.of, " ".join(model.options)] for model in ready],
    )
    note("e.g. ckh shapes llama3-70b --tp 8 --tokens 1,64,4096")
