"""`ckh bench --calibrate`: calibrates the analytic estimate to this machine's GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from ckh.archs import load_arch
from ckh.bench.devices.device import EMULATED_KIND, HIP_KIND, HOST_KIND
from ckh.commands._common import print_json, print_table, say
from ckh.documents import Document
from ckh.errors import ExitCode, UsageError
from ckh.learn.analytic.calibrated import (
    DeviceCalibration,
    MeasuredPair,
    TimeFactor,
    calibration_of,
    calibration_path,
    rates_of,
    save_calibration,
)
from ckh.schema import Status
from ckh.text.log import note, warn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.bench.checks.calibrating import MeasuredRate
    from ckh.bench.devices.device import Device, DeviceOptions
    from ckh.bench.supervision.limits import BenchLimits
    from ckh.bench.supervision.protocol import Reply
    from ckh.learn.models.spec import Wanted
    from ckh.ops.base import Kernel, Problem

_PROBLEM_SETTINGS = frozenset({"op", "variant", "dtype", "problems"})
_UNITS = {
    "launch_us": "us",
    "latency_clocks": "clocks",
    "bandwidth_gb_s": "GB/s",
    "l2_bytes_per_clock": "B/clock/CU",
    "lds_bytes_per_clock": "B/clock/CU",
}
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class CalibratedRate:
    """A rate of the GPU."""

    name: str
    unit: str
    measured: float | None
    """Null: not measured."""
    in_archspec: float
    """The architecture's rate, which the estimate uses without a calibration."""
    status: str
    """Result of the micro-kernel; "known" if it was measured earlier."""
    reason: str
    """Reason why the rate was not measured or is not plausible; empty if there is none."""


@dataclass(frozen=True, slots=True)
class CalibratedKind(TimeFactor):
    """Factor from estimated to measured times of a kind of problems."""

    kind: str


class CalibrationDocument(Document):
    """ckh bench --calibrate --json: the calibration of the analytic estimate to this machine's GPU."""

    schema = "bench_calibration"

    device: str
    arch: str
    when: str | None
    """Date and time of the last measurement; null on an emulated GPU, which has no times."""
    file: str | None
    """File of the calibration; null on an emulated GPU."""
    rates: tuple[CalibratedRate, ...]
    kinds: tuple[CalibratedKind, ...]
    failures: tuple[MeasuredPair, ...]
    """Kernels without a time."""


def check_options(given: Mapping[str, Any], others: Mapping[str, object]) -> None:
    """Refuse options of other runs.

    Args:
        given: the given settings.
        others: other options by name; those that are set are refused.

    Raises:
        UsageError: an option is given that does not apply.
    """
    wrong = [name for name in given if name not in _PROBLEM_SETTINGS] + [
        name for name, value in others.items() if value
    ]
    if wrong:
        from ckh.requested import as_option

        raise UsageError(f"--calibrate has no {as_option(wrong[0])}", "omit one of them", code="conflicting-options")


def calibrate(
    kind: str | None,
    given: Mapping[str, Any],
    options: DeviceOptions,
    limits: BenchLimits,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Measure what is not known yet, store it after each measurement, print it, and exit with its code."""
    from ckh.bench.checks.calibrating import measured_rates, micro_problems
    from ckh.bench.devices.device_choice import default_device_kind, open_device, require_usable
    from ckh.bench.supervision.limits import Stop
    from ckh.text.progress import progress

    kind = kind or default_device_kind(options)
    if kind == HOST_KIND:
        raise UsageError(
            "--calibrate is for GPUs: there is no estimate for the host", "use --device hip", code="inapplicable-option"
        )
    device = open_device(kind, options)
    is_timed = kind != EMULATED_KIND
    problems = micro_problems(device.arch, device.identity().hardware["num_cus"], is_timed=is_timed)
    require_usable(device)
    kinds = _kinds(device, given) if is_timed else {}
    known = _known(device, force=force) if is_timed else None
    left = {name: problem for name, problem in problems.items() if known is None or name not in known.rates}
    result: list[MeasuredRate] = []
    with Stop() as stop, progress("measuring rates", len(left)) as advance:
        for measured_rate in measured_rates(device, left, limits.timeout_s, stop) if left else ():
            result.append(measured_rate)
            advance(1, measured_rate.name)
            if known is not None and measured_rate.value is not None:
                known.rates[measured_rate.name] = measured_rate.value
                known = _saved(known)
        if stop():
            raise KeyboardInterrupt
    if known is None:
        _print_verified(device, result, as_json=as_json)
        return
    known = _with_kernels(known, device, kinds, limits)
    document = _document(known, result)
    print_json(document) if as_json else _print(document)
    if not document.kinds:
        warn("no kind of problems has a factor: too few kernels gave a right result", "no-working-kernel")
        raise typer.Exit(int(ExitCode.NO_KERNEL))


def _known(device: Device, *, force: bool) -> DeviceCalibration:
    """The calibration of this device and compiler so far."""
    from ckh.learn.answers.probes import this_device

    identity, arch = device.identity(), device.arch.name
    device_calibration = None if force else calibration_of(arch)
    if device_calibration is not None and device_calibration.compiler == identity.compiler:
        return device_calibration
    size, clock = identity.hardware["num_cus"], identity.hardware["max_clock_mhz"]
    return DeviceCalibration(this_device(arch) or identity.name, arch, "", identity.compiler, size, clock)


def _saved(known: DeviceCalibration) -> DeviceCalibration:
    """Store the calibration with the current date."""
    known = replace(known, when=datetime.now(timezone.utc).isoformat(timespec="seconds"))
    save_calibration(known)
    return known


def _with_kernels(
    known: DeviceCalibration, device: Device, kinds: Mapping[Wanted, Sequence[Problem]], limits: BenchLimits
) -> DeviceCalibration:
    """Measure a dozen kernels of each kind of problems, and fit their factors."""
    from ckh.bench.checks.calibrating import planned
    from ckh.bench.isolated.rounds import compare_kernels
    from ckh.bench.planning.plan import full_name

    for wanted, problems in kinds.items():
        kind = str(wanted)
        if kind in known.factors:
            note(f"{kind} was calibrated on {known.when[:10]}; --force measures all again")
            continue
        pairs = known.pairs.setdefault(kind, [])
        done = {(pair.problem, pair.kernel) for pair in pairs}
        tasks = {
            problem: [kernel for kernel in kernels if (problem, full_name(kernel)) not in done]
            for problem, kernels in planned(wanted, problems).items()
        }
        tasks = {problem: kernels for problem, kernels in tasks.items() if kernels}

        take = partial(_take, known, pairs, tasks)
        try:
            compare_kernels(device, tasks, limits.timeout_s, f"calibrating {kind}", take)
        except KeyboardInterrupt:
            note("what was measured is stored: call the command again to continue")
            raise
        if (factor := known.fitted(kind)) is not None:
            known.factors[kind] = factor
        known = _saved(known)
    return known


def _take(
    known: DeviceCalibration,
    pairs: list[MeasuredPair],
    tasks: Mapping[str, Sequence[Kernel]],
    problem: str,
    replies: Sequence[Reply],
) -> None:
    """Store the measured kernels of a problem."""
    from ckh.bench.isolated.timing import summarize
    from ckh.bench.planning.plan import full_name

    for kernel, reply in zip(tasks[problem], replies, strict=True):
        ms = summarize(reply.samples_ns).median_ns / _NS_PER_MS if reply.status is Status.OK else None
        pairs.append(MeasuredPair(problem, full_name(kernel), ms, str(reply.status)))
    save_calibration(known)


def _kinds(device: Device, given: Mapping[str, Any]) -> dict[Wanted, list[Problem]]:
    """The problems to calibrate with, by kind."""
    from ckh.bench.computation import measured_of
    from ckh.bench.supervision.campaign import settle
    from ckh.data.settings import Given
    from ckh.learn.analytic.transfer import has_estimate
    from ckh.learn.models.artifact import wanted_for
    from ckh.ops import operation

    settings = settle(Given(**given), HIP_KIND, device.arch.default_dtype)
    result: dict[Wanted, list[Problem]] = {}
    for problem in measured_of(operation(settings.op)).problems(settings):
        result.setdefault(wanted_for(problem, device.arch.name), []).append(problem)
    if not all(map(has_estimate, result)):
        raise UsageError(f"there is no estimate of {settings.op}", "calibrate another operation", code="unsupported")
    return result


def _document(known: DeviceCalibration, new: Sequence[MeasuredRate]) -> CalibrationDocument:
    refused, failed = (
        known.refused,
        {measured_rate.name: measured_rate for measured_rate in new if measured_rate.value is None},
    )
    by_archspec = rates_of(load_arch(known.arch))
    rates = []
    for name in by_archspec.keys() & (known.rates.keys() | failed.keys()):
        failure = failed.get(name)
        status = failure.status if failure else "ok" if any(item.name == name for item in new) else "known"
        reason = failure.message if failure else refused.get(name, "")
        rates.append(_rate(name, known.rates.get(name), by_archspec[name], status, reason))
    return CalibrationDocument(
        device=known.device,
        arch=known.arch,
        when=known.when,
        file=str(calibration_path(known.arch, known.device)),
        rates=tuple(sorted(rates, key=lambda rate: list(by_archspec).index(rate.name))),
        kinds=tuple(CalibratedKind(**asdict(factor), kind=kind) for kind, factor in known.factors.items()),
        failures=tuple(pair for pairs in known.pairs.values() for pair in pairs if pair.latency_ms is None),
    )


def _rate(name: str, measured: float | None, in_archspec: float, status: str, reason: str) -> CalibratedRate:
    return CalibratedRate(name, _UNITS.get(name, "FLOP/clock/CU"), measured, in_archspec, status, reason)


def _print_verified(device: Device, measured_rates: Sequence[MeasuredRate], *, as_json: bool) -> None:
    """Print the results of micro-kernels on an emulated GPU, and exit with their code."""
    by_archspec = rates_of(device.arch)
    rates = tuple(
        _rate(measured_rate.name, None, by_archspec[measured_rate.name], measured_rate.status, measured_rate.message)
        for measured_rate in measured_rates
    )
    document = CalibrationDocument(device.identity().name, device.arch.name, None, None, rates, (), ())
    print_json(document) if as_json else _print(document)
    if wrong := sum(item.status != Status.VERIFIED for item in measured_rates):
        warn(f"{wrong} of {len(measured_rates)} micro-kernels failed", "no-working-kernel")
        raise typer.Exit(int(ExitCode.NO_KERNEL))


def _print(calibration_document: CalibrationDocument) -> None:
    columns = ["rate", "unit", "measured", "archspecs", "measured / archspecs", "result"]
    rows = [
        [
            rate.name,
            rate.unit,
            "-" if rate.measured is None else f"{rate.measured:.4g}",
            f"{rate.in_archspec:.4g}",
            "-" if rate.measured is None else f"{rate.measured / rate.in_archspec:.2f}",
            rate.status,
        ]
        for rate in calibration_document.rates
    ]
    print_table(f"micro-kernels on {calibration_document.device}", columns, rows)
    for rate in calibration_document.rates:
        if rate.reason and rate.status != Status.VERIFIED:
            say(f"{rate.name} is not used: {rate.reason}")
    for kind in calibration_document.kinds:
        used = "measured rates" if kind.uses_rates else "rates of archspecs, which order these kernels better"
        say(
            f"{kind.kind}: measured times are {kind.factor:.2f} times the estimated ones (90 % of them within "
            f"{kind.low:.2f} to {kind.high:.2f} times that), by {kind.pairs} times of {kind.problems} problems; {used}"
        )
    if calibration_document.failures:
        first = calibration_document.failures[0]
        say(f"{len(calibration_document.failures)} kernels without a time, the first {first.kernel}: {first.status}")
    say(
        "stored: predict, tune and explain use it on this device"
        if calibration_document.file
        else "an emulated GPU has no times"
    )
