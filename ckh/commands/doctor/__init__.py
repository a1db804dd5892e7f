"""`ckh doctor`: this machine's GPUs, compilers, models and folders."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from ckh.bench.devices.device import DeviceOptions
from ckh.commands._common import JSON_HELP, examples, print_json, print_table, say
from ckh.commands._declared_options import option_of
from ckh.documents import Document, fields_of
from ckh.errors import UsageError
from ckh.files.outputs import check_output
from ckh.text.prose import one_of
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ckh.bench.codegen.ck_tile import Headers
    from ckh.bench.compilation.toolchain import Compiler
    from ckh.bench.supervision.checkup import ToolCheck

T = TypeVar("T")
_TABLES = {"models", "unusable_models", "warnings", "checks"}  # keys of a report that are not printed as single lines


_HELP = """Show and test this machine's GPUs, compilers, models and folders.

GPUs are opened, and the simplest kernel is compiled, linked and loaded; every failure is shown with a remedy.

--check tests the whole toolchain on one device: three kernels are compiled, verified and timed in two runs, which are
compared, and sensors are read. Then, for two minutes, kernels of all classes that ckh knows are compiled with this
machine's CK Tile headers, and executed if there is a GPU. The results are written as an archive for a bug report,
without environment variables, names of users and hosts, and home folders. Exit code 1: a check failed.
"""


@dataclass(frozen=True, slots=True)
class FoundHeaders:
    """CK Tile's headers, and the kernels of each operation that they support."""

    include: str
    """Folder of the headers."""
    version: str | None
    interface: str
    is_verified: bool
    is_unified: bool
    """True if the headers have CK's unified framework of 2026, which ckh disables."""
    differs: tuple[str, ...]
    pipelines: tuple[str, ...]
    operations: Mapping[str, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class FoundModel:
    """An available model."""

    path: str
    op: str
    variant: str
    dtype: str
    arch: str
    device: str
    """Device of the measurements; empty if unknown."""
    is_other_device: bool
    """True if the model was measured on another device."""


class DoctorDocument(Document):
    """ckh doctor --json: this machine's GPUs, compilers, models and folders."""

    schema = "doctor"

    ckh: str
    """Version."""
    python: str
    platform: str
    gpus: tuple[str, ...] | None
    default_arch: str
    cpu: str
    """This machine's processor."""
    host_cores: int
    host_l2_kb: int
    compiler: str | None
    hip_compiler: str | None
    hip_flags: tuple[str, ...] | None
    """Options of CK's own build that the HIP compiler accepts, then those of --hipcc; null without a compiler."""
    ck_tile: FoundHeaders | None
    warnings: tuple[str, ...]
    checks: tuple[ToolCheck, ...]
    """Whether GPUs, compilers and headers work."""
    ranking: str
    cache: str
    archspecs: str
    models: tuple[FoundModel, ...]
    unusable_models: tuple[str, ...]
    """Models that cannot be used, each with the reason."""
    executable: str


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="doctor",
        help=_HELP,
        epilog=examples(
            "ckh doctor",
            "ckh doctor --json",
            "ckh doctor --ck-include composable_kernel/include",
            "ckh doctor --check",
            "ckh doctor --check --device emulated --arch gfx942",
        ),
    )(doctor)


def doctor(
    check: bool = typer.Option(False, "--check", help="Compile, verify and time three kernels in two runs."),
    device: str | None = typer.Option(
        None, "--device", help="--check: host, hip or emulated.  [hip where a GPU is found]"
    ),
    arch: str | None = option_of(DeviceOptions, "arch"),
    hipcc: str | None = option_of(DeviceOptions, "hipcc"),
    ck_include: str | None = typer.Option(
        None, "--ck-include", help="Folder with CK Tile's headers.  [CK_TILE_INCLUDE, ROCm's]"
    ),
    out: Path | None = typer.Option(None, "--out", "-o", help="--check: the archive.  [ckh-check-<device>.tar.gz]"),
    force: bool = typer.Option(False, "--force", help="Replace an archive in --out."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Print the report. Missing parts are not an error, but a named folder without headers is."""
    options = DeviceOptions(arch, hipcc, ck_include)
    if check:
        _check(device, options, out, force=force, as_json=as_json)
        return
    if device is not None or out is not None or force:
        raise UsageError(
            "--device, --out and --force need --check", "add --check, or omit them", code="inapplicable-option"
        )
    report = gather(options)
    if as_json:
        print_json(report)
        return
    texts = fields_of(report) | {"ck_tile": _headers_text(report.ck_tile)}
    rows = [(key, "none found" if value is None else value) for key, value in texts.items() if key not in _TABLES]
    width = max(len(row[0]) for row in rows)
    for key, value in rows:
        say(f"{key.ljust(width)}  {value}")
    for warning in report.warnings:
        say(f"\nwarning: {warning}")
    say()
    for tool_check in report.checks:
        say(f"{tool_check.name}: {'works' if tool_check.ok else 'does not work'}: {tool_check.found}")
        if tool_check.remedy:
            say(f"remedy: {tool_check.remedy}")
    if report.ck_tile is not None:
        _print_headers(report.ck_tile)
    models = [[m.path, m.op, m.variant, m.dtype, m.arch, m.device or m.arch] for m in report.models]
    say()
    print_table("models", ["path", "op", "variant", "dtype", "arch", "measured on"], models)
    if count := sum(m.is_other_device for m in report.models):
        say(f"{count} of these models are for other devices")


def _check(kind: str | None, options: DeviceOptions, out: Path | None, *, force: bool, as_json: bool) -> None:
    """Check a device, print and archive the results, and exit with their code."""
    import tempfile

    from ckh.bench.devices.device import DEVICE_KINDS
    from ckh.bench.devices.device_choice import default_device_kind
    from ckh.bench.supervision.checkup import Checkup
    from ckh.commands.doctor import check as output
    from ckh.commands.doctor.check import Anonymizer

    kind = kind or default_device_kind(options)
    if kind not in DEVICE_KINDS:
        raise UsageError(f"unknown device {kind!r}", one_of(kind, DEVICE_KINDS), code="unknown-name")
    force = force or out is None  # an earlier check's
    out = out or Path(f"ckh-check-{kind}.tar.gz")
    check_output(out, output.ARCHIVE, force=force)
    report = gather(options)
    with tempfile.TemporaryDirectory(prefix="ckh-check-") as work:
        checkup = Checkup(kind, options, Path(work))
        checkup.run()
        document = output.document(checkup, None if report.ck_tile is None else report.ck_tile.version, out)
        output.write_archive(out, document, report, Path(work), Anonymizer())
        if as_json:
            print_json(document)
        else:
            output.print_check(checkup, out)
    raise typer.Exit(checkup.exit_code)


def gather(options: DeviceOptions) -> DoctorDocument:
    """Collect facts about this machine and its toolchain."""
    from ckh.archs import default_arch, load_arch
    from ckh.bench.compilation.hip_toolchain import all_flags, find_ck_tile, find_hipcc
    from ckh.bench.compilation.toolchain import find_compiler
    from ckh.bench.supervision.checkup import check_tools
    from ckh.files.paths import data_dir
    from ckh.hardware.gpus import visible_gpus
    from ckh.hardware.machine import processor_name
    from ckh.learn.models.artifact import unusable_models

    hipcc = _found(lambda: find_hipcc(options.hipcc))
    include = options.ck_include
    headers = find_ck_tile(include, hipcc) if include else _found(lambda: find_ck_tile(None, hipcc))
    compiler = _found(find_compiler)
    hardware = load_arch("host").hardware
    return DoctorDocument(
        ckh=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        gpus=tuple(f"{gpu.arch}, {gpu.num_cus} CUs" for gpu in visible_gpus()) or None,
        default_arch=default_arch(),
        cpu=processor_name(),
        host_cores=hardware.num_cus,
        host_l2_kb=hardware.l2_cache_kb,
        compiler=None if compiler is None else " ".join(compiler.command),
        hip_compiler=None if hipcc is None else f"{' '.join(hipcc.command)} ({hipcc.version})",
        hip_flags=None if hipcc is None else _found(lambda: all_flags(hipcc)),
        ck_tile=None if headers is None else _headers(headers),
        warnings=tuple(_warnings(options, hipcc)),
        checks=tuple(check_tools(options)),
        ranking=_ranking(),
        cache=_cache(),
        archspecs=str(data_dir("archspecs")),
        models=_models(),
        unusable_models=tuple(unusable_models()),
        executable=sys.argv[0],
    )


def _warnings(options: DeviceOptions, hipcc: Compiler | None) -> Iterator[str]:
    from ckh.archs import arch_names, arch_of_gpu, default_arch, load_arch
    from ckh.bench.compilation.hip_toolchain import compiler_warning

    if hipcc is not None and (warning := compiler_warning(hipcc)):
        yield warning
    name, _ = arch_of_gpu((options.arch or default_arch()).partition(":")[0])
    if name in arch_names() and (unverified := load_arch(name).unverified):
        yield f"{name}: {unverified}"


def _headers(headers: Headers) -> FoundHeaders:
    from ckh.bench.computation import measured_of
    from ckh.ops import built_in_names, operation

    emissions = {name: measured_of(op).hip for name in built_in_names() if (op := operation(name)).measured is not None}
    return FoundHeaders(
        include=str(headers.include),
        version=headers.version or None,
        interface=str(headers.interface),
        is_verified=headers.interface.is_verified and not headers.unlike,
        is_unified=headers.is_unified,
        differs=tuple(headers.unlike),
        pipelines=tuple(sorted(headers.pipelines)),
        operations={name: emission.found(headers) for name, emission in emissions.items() if emission is not None},
    )


def _headers_text(found_headers: FoundHeaders | None) -> str:
    if found_headers is None:
        return "none found"
    version = f"CK {found_headers.version}" if found_headers.version else "no version stated"
    unified = ", unified framework switched off" if found_headers.is_unified else ""
    verified = "" if found_headers.is_verified else ", not verified"
    return f"{found_headers.include} ({version}, interface {found_headers.interface}{unified}{verified})"


def _print_headers(found_headers: FoundHeaders) -> None:
    from ckh.bench.codegen.ck_tile import NOT_VERIFIED

    if not found_headers.is_verified:
        say(f"\nwarning: {NOT_VERIFIED}")
    for what in found_headers.differs:
        say(f"differs: {what}")
    for name, words in found_headers.operations.items():
        rows = [[what, ", ".join(names) or "none"] for what, names in words.items() if what != "differs" or names]
        say()
        print_table(f"CK Tile for {name}", ["what", "available"], rows)


def _cache() -> str:
    """Location of the cache, or the reason why it cannot be used."""
    from ckh.errors import DataError
    from ckh.files.paths import cache_dir

    try:
        return str(cache_dir())
    except DataError as error:
        return error.message


def _found(find: Callable[[], T]) -> T | None:
    from ckh.errors import DeviceError

    try:
        return find()
    except DeviceError:
        return None


def _ranking() -> str:
    """Ranking implementation, with the reason if it is not C."""
    from ckh.errors import UsageError
    from ckh.ranking.evaluator import backend_name
    from ckh.ranking.library import why_not

    try:
        name = backend_name()
    except UsageError as error:
        return error.message
    return name if name == "c" or not why_not() else f"{name} ({why_not()})"


def _models() -> tuple[FoundModel, ...]:
    from ckh.learn.answers.known import other_device
    from ckh.learn.models.artifact import list_models, load_model

    return tuple(
        FoundModel(
            path=str(model.path),
            op=model.spec.op_type,
            variant=model.variant,
            dtype=model.dtype,
            arch=model.spec.arch,
            device=model.spec.device,
            is_other_device=bool(other_device(model.spec.arch, model.spec.device, load_model(model.path).num_cus)),
        )
        for model in list_models()
    )
