"""The kernels of experts that an installed AITER, or its source, builds: those that its own generator emits."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

from ckh.errors import DataError, UsageError
from ckh.ops.aiter_moe.readers.tuned_csv import QUANT_NAMES

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.aiter_moe.problem import AiterMoe

_GENERATOR = "csrc/ck_gemm_moe_2stages_codegen/gen_instances.py"
_TIMEOUT_S = 120
_WRONG_USAGE = 2  # how argparse ends, also where a version has no such activation
_TYPES = {"per_token": "f8", "per_1x128": "f8", "per_1x32": "fp4x2", "none": "b16"}
# Runs the generator in a folder of its own, and prints the names in its table. Its queries of a GPU get fixed answers.
_PRINT = """
import json, os, re, runpy, sys, tempfile, types
from pathlib import Path
arch, path, *args = sys.argv[1:]
chip = types.ModuleType("chip_info")
chip.get_gfx, chip.get_gfx_list = (lambda: arch), (lambda: [arch])
for name in ("chip_info", "aiter", "aiter.jit", "aiter.jit.utils", "aiter.jit.utils.chip_info"):
    sys.modules[name] = chip
sys.path.insert(0, os.path.dirname(path))
with tempfile.TemporaryDirectory() as work:
    sys.argv = [path, "-w", work, *args]
    runpy.run_path(path, run_name="__main__")
    texts = [file.read_text() for file in Path(work).glob("*lookup*.h")]
print(json.dumps(sorted({name for text in texts for name in re.findall(r'"(moe_ck2stages_\\w+)"', text)})))
"""


def built_kernels(root: Path, arch: str, problem: AiterMoe) -> frozenset[str]:
    """The names of the kernels that AITER builds for a kind of mixtures; none where it does not know its activation.

    Args:
        root: AITER's source, or its package where it is installed.
        arch: the architecture.
        problem: of the kind.

    Raises:
        UsageError: there is no AITER.
        DataError: it has no generator, or one that fails.
    """
    return _built(root, arch, problem.quant, problem.activation)


@cache
def _built(root: Path, arch: str, quant: str, activation: str) -> frozenset[str]:
    path = _generator(root)
    types = _TYPES[quant]
    kind = ("-a", types, "-b", types, "-c", "b16", "-q", QUANT_NAMES[quant].lower(), "-act", activation, "-m", "2")
    command = [sys.executable, "-I", "-c", _PRINT, arch, str(path), *kind, "-p"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        names = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise DataError(f"cannot run AITER's generator {path}: {error}", code="aiter-failed") from error
    if done.returncode not in (0, _WRONG_USAGE):
        raise DataError(
            f"cannot run AITER's generator {path}: {[*done.stderr.split(chr(10)), ''][-2].strip()}", code="aiter-failed"
        )
    return frozenset(map(str, names))


def _generator(root: Path) -> Path:
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}", "name AITER's source, or its installed package", code="no-aiter")
    for base in (root, root / "aiter_meta", root.parent / "aiter_meta", root.parent):
        if (base / _GENERATOR).is_file():
            return base / _GENERATOR
    raise DataError(
        f"{root} has no generator of mixture-of-experts kernels: no {_GENERATOR} in or beside it", code="no-aiter"
    )
