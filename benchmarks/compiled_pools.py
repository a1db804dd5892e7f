"""Compiler output for the default pools of convolutions for AMD Instinct GPUs: the files of archspecs/compiled.

    python benchmarks/compiled_pools.py WORK                                  # compile, in the order below
    python benchmarks/compiled_pools.py WORK --arch gfx950 --only forward     # some of it
    python benchmarks/compiled_pools.py WORK --write                          # write the files of complete groups

Kernels are compiled for the device only, in units (about six CPU seconds each, 4,700 in all), into the folder WORK;
finished ones are not compiled again. A group (architecture, direction, dimensions, element type) is written once all of
its kernels that the headers can build are compiled. It needs a HIP compiler (HIPCC) and CK Tile's headers
(CK_TILE_INCLUDE). GEMMs, whose pools have 95,000 kernels, are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import astuple
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.codegen.unit import UnsupportedKernelError, code_hash, function_part, remarks_of, similarity
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import HIP_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.files.paths import write_atomic
from ckh.isa.codefile import read_code
from ckh.isa.describe import Asked, functions_of
from ckh.kernels.compiled import shipped_path
from ckh.ops import operation
from ckh.ops.grouped_conv.measuring.measured import SetCandidates
from ckh.problems import Direction
from ckh.schema import Resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.bench.devices.device import Device

OP = operation("grouped_conv")
ARCHS, DTYPES = ("gfx950", "gfx942", "gfx90a"), ("bf16", "fp16", "fp32")
TOGETHER = 6
DEVICE_ONLY = ("--offload-device-only", "--no-gpu-bundle-output")
Group = tuple[str, Direction, int, str]


def groups() -> list[Group]:
    """All groups, most requested first."""
    order = [(2, "bf16"), (2, "fp16"), (2, "fp32"), *product((3,), DTYPES)]
    return [(arch, way, ndim, dtype) for ndim, dtype in order for way in Direction for arch in ARCHS]


def sources(device: Device, group: Group) -> tuple[dict[str, list[tuple[Any, str]]], Counter[str]]:
    """Kernels with their sources, grouped into units; and reasons why others cannot be built."""
    _, variant, ndim, dtype = group
    emission = measured_of(OP).hip
    assert emission is not None
    folders = (Path(__file__).parents[1] / "ckh/bench/codegen/templates/ck_tile", *emission.templates)
    result: dict[str, list[tuple[Any, str]]] = {}
    refused: Counter[str] = Counter()
    for kernel in SetCandidates().of(variant, ndim, dtype, device.arch)[0]:
        source, reason = emitted(device, kernel)
        if reason:
            refused[reason] += 1
        else:
            result.setdefault(code_hash(source, folders), []).append((kernel, source))
    return result, refused


def emitted(device: Device, kernel: Any) -> tuple[str, str]:
    """A kernel's source, or the reason why there is none."""
    try:
        return device.emit(kernel), ""
    except UnsupportedKernelError as error:
        return "", str(error)


def done(work: Path, arch: str) -> dict[str, dict[str, Any]]:
    """Finished kernels, by source hash; a truncated line is left out."""
    path, result = work / f"{arch}.jsonl", {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with suppress(ValueError):
            document = json.loads(line)
            result[document["code"]] = document
    return result


def compile_group(work: Path, device: Device, group: Group) -> None:
    """Compile the remaining kernels of a group."""
    known, (wanted, _) = done(work, group[0]), sources(device, group)
    left = [(key, *some[0]) for key, some in wanted.items() if key not in known]
    left.sort(key=lambda item: similarity(item[2]))
    print(*group, f"{len(left)} of {len(wanted)} left", flush=True)
    for at in range(0, len(left), TOGETHER):
        begin = time.monotonic()
        lines = [*compile_unit(work, device, group[0], left[at : at + TOGETHER])]
        with (work / f"{group[0]}.jsonl").open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
        print(f"{len(lines)} in {time.monotonic() - begin:.0f} s", flush=True)


def compile_unit(work: Path, device: Device, arch: str, some: list[tuple[str, Any, str]]) -> Iterator[dict[str, Any]]:
    """Compile a few sources as one, or each alone if that fails, and yield what is known of each."""
    first = some[0][1]
    source, output = work / "unit.cpp", work / "unit.co"
    source.write_text(device.emit_unit(first, [text for _, _, text in some]), encoding="utf-8")
    command = [*device.compile_command(first, source, output), *DEVICE_ONLY]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    name = f"{arch}-{some[0][0]}.co"
    if run.returncode and len(some) > 1:
        for item in some:
            yield from compile_unit(work, device, arch, [item])
        return
    if run.returncode:
        errors = [line for line in run.stderr.splitlines() if "error:" in line]
        print(OP.kernels.name(first), *errors[:3], sep="\n", file=sys.stderr)
    else:
        output.chmod(0o600)
        output.rename(work / name)
    for number, (key, kernel, text) in enumerate(some):
        binary = None if run.returncode else device.inspect(kernel, text, remarks_of(number, run.stderr), b"")
        resources = None if binary is None or binary.resources is None else astuple(binary.resources)
        yield {"code": key, "kernel": OP.kernels.name(kernel), "unit": name, "number": number, "resources": resources}


def lines_of(work: Path, device: Device, group: Group) -> tuple[list[list[Any]], dict[str, Any]] | None:
    """A complete group's lines for the shipped file, and its part of the header; None if some are not compiled yet."""
    known, (wanted, refused) = done(work, group[0]), sources(device, group)
    if not wanted or not all(key in known for key in wanted):
        return None
    lines, failed = [], 0
    for key, some in wanted.items():
        item = known[key]
        if item["resources"] is None:
            failed += len(some)
            continue
        values = item["resources"]
        resources = Resources(**values) if isinstance(values, dict) else Resources(*values)
        code = read_code(work / item["unit"], group[0], (function_part(item["number"]),))
        functions = functions_of(code, Asked(item["kernel"], item["unit"], some[0][0]))
        facts = (sum(function.code_bytes for function in functions), *(function.trips for function in functions))
        lines += [[OP.kernels.name(kernel), *astuple(resources), *facts] for kernel, _ in some]
    head = {"group": [str(part) for part in group[1:]], "compiled": len(lines), "failed": failed}
    return lines, {**head, "not_built": dict(refused.most_common())}


def write(work: Path, arch: str) -> None:
    """Write an architecture's file of all complete groups."""
    device, lines, heads = open_device(HIP_KIND, DeviceOptions(arch)), [], []
    for group in groups():
        if group[0] == arch and (result := lines_of(work, device, group)) is not None:
            lines += result[0]
            heads.append(result[1])
    if lines:
        head = {"arch": arch, "op": OP.name, "compiler": device.identity().compiler, "groups": heads}
        path = shipped_path(arch, OP.name)
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, "".join(json.dumps(line) + "\n" for line in (head, *lines)).encode())
        print(f"{path}: {len(lines)} kernels, {path.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    """Compile or write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("--arch", choices=ARCHS)
    parser.add_argument("--only", default="", help="groups whose name has this, such as forward, 2 bf16")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    archs = [arch for arch in ARCHS if options.arch in (None, arch)]
    if options.write:
        for arch in archs:
            write(options.work, arch)
        return
    for group in groups():
        if group[0] in archs and options.only in " ".join(map(str, group)):
            compile_group(options.work, open_device(HIP_KIND, DeviceOptions(group[0])), group)


if __name__ == "__main__":
    main()
