"""CK Tile in source packages: its interface, and sample kernels that are compiled and executed.

    python benchmarks/bundled_trees.py                          # flash-attn and tilelang
    python benchmarks/bundled_trees.py PACKAGE==VERSION … --arch gfx950 --keep FOLDER

pip downloads and unpacks a source package; its headers are copied from there. It does not matter if pip then fails to
build it for lack of dependencies. One kernel of each direction of convolutions and of GEMMs is compiled and executed on
the emulated GPU. It needs a HIP compiler (HIPCC) and pip's package index.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from executed_kernels import classes, run  # type: ignore[import-not-found]  # of this folder

from ckh.bench.codegen.ck_tile import detect_interface
from ckh.bench.devices.device import EMULATED_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.limits import BenchLimits
from ckh.problems import Direction

PACKAGES = ("flash-attn==2.8.3.post2", "tilelang==0.1.13")
_SAMPLES = (*(f"{direction} fp16 compv3 intrawave" for direction in Direction), "fp16 rcr compv3 intrawave")
_HEADER = "composable_kernel/include/ck_tile/core.hpp"
_TIMEOUT_S = 1800.0


class TreeError(Exception):
    """A package has no source package, or no CK headers in it."""


def unpacked(package: str, to: Path) -> Path:
    """Copy the CK tree of a package's source package into a folder.

    Raises:
        TreeError: pip does not find the package, or it has no CK.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--no-clean", "-q", "--dest", folder)
        command = [sys.executable, "-m", "pip", "download", *options, package]
        # pip leaves what it unpacked, or only the archive if it could build the metadata.
        done = subprocess.run(
            command, env={**os.environ, "TMPDIR": folder}, capture_output=True, text=True, check=False
        )
        for archive in Path(folder).glob("*.tar.gz"):
            shutil.unpack_archive(archive, folder, filter="data")
        for header in Path(folder).rglob(_HEADER):
            root = header.parents[2]
            shutil.copytree(root / "include", to / "include")
            if (root / "CMakeLists.txt").exists():
                shutil.copy(root / "CMakeLists.txt", to)
            return to
    said = done.stderr.strip().splitlines()
    raise TreeError(f"{package}: no {_HEADER} in its source package" + (f"; pip: {said[-1]}" if said else ""))


def report(package: str, tree: Path, arch: str) -> bool:
    """Print the version of a tree, and the results of its sample kernels; False if one is wrong."""
    include = tree / "include"
    headers = detect_interface(include)
    version = headers.version or "without a version"
    print(f"{package}: CK {version}, interface {headers.interface}", *headers.unlike, sep="\n  ", flush=True)
    device = open_device(EMULATED_KIND, DeviceOptions(arch, ck_include=str(include)))
    driver = Driver(device, BenchLimits(timeout_s=_TIMEOUT_S, compile_timeout_s=_TIMEOUT_S), lambda: False)
    chosen = [(name, kernel) for name, kernel in classes(device, "*") if name in _SAMPLES]
    built = driver.build([kernel for _, kernel in chosen])
    dones = [run(driver, name, kernel, built[kernel]) for name, kernel in chosen]
    for name in _SAMPLES:
        record = next((item for item in dones if item.kernel_class == name), None)
        said = (
            "not in these headers"
            if record is None
            else f"{record.status} {record.reason} on {record.problems} problems"
        )
        print(f"  {name}: {said}", flush=True)
    return all(item.status == "verified" for item in dones)


def main() -> int:
    """Report on each package; 1 if a kernel is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="PACKAGE==VERSION")
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--keep", type=Path, help="where the trees are kept, and taken from another time")
    options = parser.parse_args()
    right = True
    with tempfile.TemporaryDirectory() as folder:
        for package in options.packages:
            tree = (options.keep or Path(folder)) / package
            try:
                right &= report(package, tree if tree.exists() else unpacked(package, tree), options.arch)
            except TreeError as error:
                parser.error(str(error))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
