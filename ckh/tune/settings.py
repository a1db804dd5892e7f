"""Settings of a tuning, and the file that stores them with the finished steps."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.archs import HOST
from ckh.bench.devices.device import HOST_KIND, DeviceOptions
from ckh.bench.devices.device_choice import default_device_kind
from ckh.declared import Declared, declared
from ckh.errors import DataError, UsageError
from ckh.files.jsonfields import JsonFields
from ckh.files.outputs import FileKind, head_of, write_output
from ckh.ops import operation, operation_names
from ckh.shapes.layers import RunOptions, token_options
from ckh.shapes.sources import has_tokens, source_of
from ckh.text.durations import parse_budget
from ckh.text.prose import one_of
from ckh.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE, _VERSION = "tune.json", "ckh_version"
KIND = FileKind("file of ckh tune", lambda path: head_of(path).lstrip(b"{ \n").startswith(f'"{_VERSION}"'.encode()))
# Settings that a later call on the same folder may change, and the first step to repeat then.
_REPEATS = {"budget": "bench", "to": "export"}


@dataclass(frozen=True, slots=True)
class Target:
    """A target of ckh export."""

    needs_model: bool = False  # it is made of a trained model alone
    takes_kernels: bool = False  # the fastest kernels of the shapes, measured or predicted
    takes_problems: bool = True
    is_for_gpus: bool = False


TARGETS = {
    "aiter": Target(is_for_gpus=True),
    "amd-registry": Target(takes_kernels=True, takes_problems=False),
    "c": Target(needs_model=True, takes_problems=False),
    "inductor": Target(takes_problems=False, is_for_gpus=True),
}
OWN_TABLES = "aiter"  # the target with tables of operations of its own, which have times
_LISTED = "shapes"  # the last step before the choice of settings


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneChoices:
    """Choices of a tuning; None: not given."""

    op: str | None = declared(
        Declared(
            "Operation: {}.  [the measured one with the most work]", choices=operation_names, completion="operations"
        ),
        default=None,
    )
    variant: str | None = declared(Declared("Direction of convolutions.  [forward]"), default=None)
    dtype: str | None = declared(
        Declared("Element type.  [the shapes'; host: fp32]", completion="dtypes"), default=None
    )
    device: str | None = declared(
        Declared("host, hip or emulated.  [hip where a GPU is found]", metavar="KIND"), default=None
    )
    arch: str | None = declared(Declared("Architecture.  [the device's]", completion="architectures"), default=None)
    budget: str = declared(Declared("Time for compiling and measuring.  [15m]", metavar="TIME"), default="15m")
    to: str | None = declared(Declared("Export: aiter, amd-registry, c or inductor.", metavar="TARGET"), default=None)
    installed: str | None = declared(
        Declared("--to aiter: AITER's source or package, whose tables are kept.", kind=Path), default=None
    )
    today: str | None = declared(
        Declared(
            "Registry or file of names of the kernels in use today, of which the first that applies to a shape is "
            "compared, as CK's dispatcher chooses.  [the choice of ckh predict]",
            kind=Path,
        ),
        default=None,
    )


@dataclass(frozen=True, slots=True)
class TuneSettings(TuneChoices):
    """Settings of a tuning."""

    sources: tuple[str, ...]
    options: tuple[str, ...] = ()

    def shape_options(self) -> tuple[str, ...]:
        """Options of `ckh shapes`; the sources follow, after `--`."""
        return (*self.options, *_options(op=self.op, variant=self.variant, dtype=self.dtype))

    @property
    def weights(self) -> dict[int, int]:
        """How often each number of tokens runs; empty if the sources have none."""
        typed = dict(zip(self.options[::2], self.options[1::2], strict=True))
        wanted = RunOptions(**token_options(typed.get("--tokens"), typed.get("--workload")))
        return wanted.weights if wanted.times or any(map(has_tokens, map(source_of, self.sources))) else {}

    def place_options(self) -> tuple[str, ...]:
        """Arguments of commands that rank: architecture and element type."""
        return (*self.arch_options(), *_options(dtype=self.dtype))

    def arch_options(self) -> tuple[str, ...]:
        """The architecture alone, for commands that rank."""
        return _options(arch="host" if self.device == "host" else self.arch)

    def device_options(self) -> tuple[str, ...]:
        """Arguments of `ckh bench`: the device, and the kernels in use today."""
        return _options(device=self.device, arch=self.arch, dtype=self.dtype, today=self.today)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions(TuneChoices):
    """Options of `ckh tune`, as typed."""

    tp: int = declared(Declared("Ranks of tensor parallelism.  [1]", metavar="N", low=1), default=1)
    tokens: str | None = declared(
        Declared("Rows of a language model's GEMMs, and how often they run.", metavar="N[:TIMES][,…]"), default=None
    )
    workload: str | None = declared(
        Declared("Rows and weights of a workload: decode, prefill or mixed.", metavar="NAME"), default=None
    )
    batch: str = declared(Declared("Images, clips or samples at a time.  [1]", metavar="N[,N…]"), default="1")

    def shape_options(self) -> tuple[str, ...]:
        """Further arguments of `ckh shapes`."""
        ranks = {"tp": str(self.tp)} if self.tp > 1 else {}
        return _options(batch=self.batch, tokens=self.tokens, workload=self.workload, **ranks)


def settings_of(sources: Sequence[str], given: TuneOptions) -> TuneSettings:
    """Settings of a tuning of sources, with the device of this machine."""
    if not sources:
        raise UsageError("no source", "name a file or a model (ckh shapes lists them)", code="missing-option")
    parse_budget(given.budget)
    token_options(given.tokens, given.workload)
    if given.to is not None and given.to not in TARGETS:
        raise UsageError(f"unknown target {given.to!r}", one_of(given.to, TARGETS), code="unknown-name")
    arch = None if given.arch == HOST else given.arch
    kind = given.device or (HOST_KIND if given.arch == HOST else default_device_kind(DeviceOptions(arch)))
    if given.to is not None and TARGETS[given.to].is_for_gpus and kind == HOST_KIND:
        raise UsageError(
            f"--to {given.to} is for GPUs, and without a GPU the CPU is tuned",
            "name the GPU, e.g. --arch gfx942",
            code="inapplicable-option",
        )
    if given.to == OWN_TABLES and given.today is not None:
        raise UsageError(
            f"--to {OWN_TABLES} compares with AITER's own tables",
            "omit --today, or add --installed",
            code="inapplicable-option",
        )
    if given.today is not None and not Path(given.today).is_file():
        raise UsageError(f"--today: no such file: {given.today}", "name a list of kernels", code="no-file")
    chosen = {field.name: getattr(given, field.name) for field in fields(TuneChoices)} | {
        "op": None if given.op is None else operation(given.op).name,
        "dtype": given.dtype or ("fp32" if kind == HOST_KIND else None),
        "device": kind,
        "arch": arch,
        "today": None if given.today is None else str(Path(given.today).resolve()),
    }
    return TuneSettings(tuple(sources), given.shape_options(), **chosen)


def _options(**values: str | None) -> tuple[str, ...]:
    return tuple(part for name, value in values.items() if value is not None for part in (f"--{name}", value))


@dataclass(slots=True)
class Progress:
    """Finished steps of a folder."""

    folder: Path
    settings: TuneSettings
    done: list[str] = field(default_factory=list)

    def mark(self, name: str) -> None:
        """Record that a step is finished."""
        self.done.append(name)
        self.write()

    def repeat_from(self, name: str) -> None:
        """Mark a step and those after it as unfinished."""
        if name in self.done:
            del self.done[self.done.index(name) :]
            self.write()

    def write(self) -> None:
        """Write the file."""
        document = {_VERSION: __version__, "settings": asdict(self.settings), "done": self.done}
        write_output(self.folder / FILE, json.dumps(document, indent=2).encode() + b"\n", replace=True)


def progress_of(folder: Path, settings: TuneSettings) -> Progress:
    """Progress of a folder; empty if it is new."""
    path = folder / FILE
    if not path.exists():
        progress = Progress(folder, settings)
        progress.write()
        return progress
    values = JsonFields.read(path)
    before, done = values.value("settings"), list(values.strings("done"))
    if not isinstance(before, dict):
        raise DataError(f"{path}: settings must be an object", code="bad-field")
    now = json.loads(json.dumps(asdict(settings)))
    changed = [
        f"{name} {before.get(name)!r}, not {value!r}"
        for name, value in now.items()
        if name not in _REPEATS and before.get(name) != value
    ]
    if changed and set(done) <= {_LISTED}:
        done = []
    elif changed:
        raise UsageError(
            f"{folder} was started with other settings: {', '.join(changed)}",
            "give the same options to continue, another --out, or --force to start over",
            code="run-mismatch",
        )
    progress = Progress(folder, settings, done)
    for name, step in _REPEATS.items():
        if before.get(name) != now[name]:
            progress.repeat_from(step)
    return progress
