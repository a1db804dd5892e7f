"""`ckh convert`: merges journals and files of AMD's benchmarks into one Parquet dataset."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from ckh.archs import arch_of_gpu
from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, NO_PEAK_CHECK_HELP, completed, examples, print_json, print_table, say
from ckh.commands.help import DATA
from ckh.data import conversion
from ckh.data.conversion import PARQUET, ConversionSummary
from ckh.data.dataset import holdout_path, read_dataset, share_of, split_off, write_dataset
from ckh.data.formats import ReadOptions
from ckh.data.readers import readers
from ckh.documents import fields_of
from ckh.errors import UsageError
from ckh.export.folder import require_measurements
from ckh.files.outputs import check_output
from ckh.text.log import warn
from ckh.text.prose import shell_word

_HELP = """Merge journals of ckh bench, and files and logs of AMD's benchmarks and tools, into one dataset.

Formats are detected from the content. Failures stay as rows. If a pair of problem and kernel was measured repeatedly,
the last row of a run counts; across runs wrong results have precedence, then measured times, then remeasured ones, then
more samples.
An existing file is replaced with --force only, and only by the same kind of file; an input is never overwritten.
Any CSV or Parquet table can be read with --op; --map maps our column names to those of the table, if they differ.
Rows that ckh does not understand are left out, counted and named; with --strict they end the conversion without output.
So are rows without a time, and times above 1.2 times the peak rates of their GPU; if these are more than a tenth, the
input is refused.
"""


_FROM_HELP = f"Format of all inputs, instead of detection: {', '.join(readers())}."
_FORMATS = conversion.output_formats()
_TO = "[" + "|".join((PARQUET, *_FORMATS)) + "]"
_TO_HELP = "; ".join(f"{written.name}: {written.summary}" for written in _FORMATS.values()) + "."


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="convert",
        help=_HELP,
        epilog=examples(
            "ckh convert runs/today --out data.parquet",
            "ckh convert runs/*/journal.jsonl --out data.parquet --json",
            "ckh convert grouped_conv_results.csv --arch gfx942 --out amd.parquet",
            "ckh convert old.csv --arch gfx90a --strict --out amd.parquet",
            "ckh convert benchmark_results_fp16_rcr.json gemm.log --arch gfx950 --out gemm.parquet",
            "ckh convert sweep_results.csv --arch gfx942 --out gemm.parquet",
            "ckh convert my.csv --op gemm_universal --arch gfx942 --map kernel=name --map latency_us=t --out my",
            "ckh convert runs/today --to csv --out for_amd.csv",
        ),
    )(convert)


def convert(
    inputs: list[Path] = typer.Argument(
        ..., metavar="INPUT...", help="Journals, folders of runs, CSV, JSON or Parquet files, logs."
    ),
    out: Path = typer.Option(..., "--out", "-o", help="File to write."),
    arch: str | None = completed("arch", "Architecture or GPU of AMD's measurements, e.g. gfx942, mi308x.", panel=DATA),
    from_format: str | None = typer.Option(
        None,
        "--from",
        metavar="FORMAT",
        autocompletion=_completion.input_formats,
        help=_FROM_HELP,
    ),
    op: str | None = completed(
        "op", "Operation of a table whose columns have our names, or are mapped to them.", panel=DATA
    ),
    maps: list[str] = typer.Option(
        [],
        "--map",
        metavar="OURS=THEIRS",
        help="Mapping of our column to a table's, e.g. latency_us=time; repeatable.",
    ),
    to: str = typer.Option(
        PARQUET,
        "--to",
        metavar=_TO,
        autocompletion=_completion.output_formats,
        help=_TO_HELP,
    ),
    strict: bool = typer.Option(False, "--strict", help="Exit code 4 for a row that ckh does not understand."),
    no_peak_check: bool = typer.Option(False, "--no-peak-check", help=NO_PEAK_CHECK_HELP),
    force: bool = typer.Option(False, "--force", help="Replace a file of the same kind."),
    split: str | None = typer.Option(
        None, "--split", metavar="SHARE", help="Write a share of the problems, e.g. 20%, to OUT-holdout.parquet."
    ),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Convert the inputs and print a summary of their rows."""
    if any(path.is_dir() or path.suffix == ".jsonl" for path in inputs):
        # A journal's rows are many small allocations, and Arrow's own allocator retains freed memory in proportion to
        # the number of rows. Arrow reads this variable when it is loaded, later.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    check_output(out, conversion.output_kind(to), force=force, inputs=inputs)
    share, holdout = share_of(split, "--split"), None if split is None else holdout_path(out)
    if holdout is not None:
        if to != PARQUET:
            raise UsageError("--split is for datasets", "omit --to, or --split", code="conflicting-options")
        check_output(holdout, conversion.output_kind(to), force=force, inputs=inputs)
    for path in inputs:
        require_measurements(path)
    mapping = _mapping(maps, op, from_format)
    measured, cus = (None, 0) if arch is None else arch_of_gpu(arch)
    options = ReadOptions(measured, strict, cus or None, op=op, mapping=mapping, peak_check=not no_peak_check)
    summary = conversion.convert(inputs, out, options, format_name=from_format, to=to)
    for warning in summary.warnings:
        warn(warning, "conversion")
    if holdout is not None:
        rest, held = split_off(read_dataset(out), share)
        write_dataset(held, holdout)
        write_dataset(rest, out)
        summary = replace(summary, sha256=read_dataset(out).content_hash)
    model = shell_word(f"models/{out.stem}")
    next_command = f"ckh train {shell_word(out)} --out {model}" if to == PARQUET and summary.valid else None
    if next_command is not None and holdout is not None:
        next_command += f" && ckh evaluate --model {model} --data {shell_word(holdout)}"
    if as_json:
        from ckh.data.conversion import ConvertDocument

        held_out = None if holdout is None else str(holdout)
        print_json(ConvertDocument(**fields_of(summary), out=str(out), holdout=held_out, next=next_command))
    else:
        _print_summary(out, summary, next_command)


def _mapping(maps: list[str], op: str | None, from_format: str | None) -> dict[str, str]:
    """Column mapping of --map: ckh's column -> input column."""
    mapping: dict[str, str] = {}
    for text in maps:
        ours, is_pair, theirs = (part.strip() for part in text.partition("="))
        if not (ours and is_pair and theirs):
            raise UsageError(f"--map {text!r} is not OURS=THEIRS", "e.g. --map latency_us=time", code="bad-mapping")
        if ours in mapping:
            raise UsageError(f"--map has {ours} twice: {mapping[ours]} and {theirs}", code="duplicate-name")
        mapping[ours] = theirs
    if mapping and op is None:
        raise UsageError("--map needs --op", "name the operation that was measured", code="missing-option")
    if op is not None and from_format is not None:
        raise UsageError("--op and --from exclude each other", "omit one of them", code="conflicting-options")
    return mapping


def _print_summary(out: Path, summary: ConversionSummary, next_command: str | None) -> None:
    rows: list[tuple[str, Any]] = [
        ("rows", summary.rows),
        ("usable times", summary.valid),
        *((f"status {status}", count) for status, count in summary.by_status.items()),
        ("problems", summary.problems),
        ("kernels", summary.kernels),
        ("arch", ", ".join(summary.archs)),
        ("direction", ", ".join(summary.variants)),
        ("superseded in a run", summary.superseded),
        ("repeated across runs", summary.repeated),
        *((f"tables that tried (inferred) {tried}", count) for tried, count in summary.tried.items()),
        *((f"left out: {reason}", count) for reason, count in summary.dropped.items()),
    ]
    print_table(str(out), ("", "count"), [[name, str(value)] for name, value in rows])
    if next_command is not None:
        say(f"\nnext: {next_command}")
