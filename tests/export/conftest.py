"""Shared fixtures of the tests of the C export: exported models, compilers, and a program that ranks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.export.groups import exported
from ckh.export.to_c import c_files
from ckh.files.outputs import write_folder
from ckh.learn.models.artifact import load_model
from ckh.ops import operation_of_problem
from ckh.ops.base import Encoding
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL
from ckh.ops.gemm_universal.operation import OPERATION
from ckh.ops.gemm_universal.problem import GemmProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.learn.models.artifact import Model

HERE = Path(__file__).parent
MODELS = HERE.parents[1] / "models"
_PAIRS = (("gcc", "g++"), ("clang", "clang++"), ("clang-19", "clang++-19"))
COMPILERS = [pair for pair in _PAIRS if all(map(shutil.which, pair))]
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
_ERROR = re.compile(r"(CKH_(?:OK|ERROR_\w+)) = (\d+)")


@dataclass(frozen=True)
class Found:
    """The program's answer for a problem: the name of the error, and kernels with score, TFLOPS and ms."""

    error: str
    kernels: list[str]
    numbers: list[tuple[float, float, float]]


def export(folder: Path, models: Sequence[Model], *, embed: bool = False) -> Path:
    """Export models into a folder."""
    write_folder(folder, c_files(models, embed=embed)[0].items())
    return folder


def gemm_model(folder: Path, arch: str = "host", dtype: str = "fp32") -> Model:
    """A small model with all features of GEMMs and synthetic speeds, in the format of AMD's tools."""
    random, spec = np.random.default_rng(0), load_arch(arch)
    names = GEMM_UNIVERSAL.names
    pool = OPERATION.kernels.candidates(GemmProblem(64, 64, 64, dtype), spec, folder).pool
    columns = OPERATION.kernels.features([pool[i] for i in random.integers(0, len(pool), 1000)], Encoding(legacy=True))
    sizes = 2 ** random.integers(2, 13, (12, 3))
    problems = [GemmProblem(m, n, k, dtype) for m, n, k in sizes.tolist()]
    matrices = [
        GEMM_UNIVERSAL.matrix({**OPERATION.problems.features([problem]), **columns}, spec.hardware.to_dict(), names)
        for problem in problems
    ]
    x = np.concatenate(matrices)
    y = np.sin(np.log1p(np.abs(x)) @ random.normal(size=(x.shape[1], 6))).sum(axis=1) + 3
    params = {"objective": "regression", "verbose": -1, "num_leaves": 31, "num_threads": 1, "feature_fraction": 0.1}
    booster = lightgbm.train(params, lightgbm.Dataset(x, y, feature_name=list(names)), num_boost_round=80)
    folder.mkdir(parents=True)
    (folder / "model_tflops.lgbm").write_text(booster.model_to_string(), encoding="utf-8")
    facts = {"op_type": "gemm_universal", "feature_encoding_version": 0, "hardware": spec.hardware.to_dict()}
    facts |= {"dtype": dtype, "arch": arch, "feature_names": names, "categorical_features": []}
    facts |= {"targets": ["tflops"], "log_targets": ["tflops"], "params": {}}
    (folder / "feature_spec.json").write_text(json.dumps(facts), encoding="utf-8")
    return load_model(folder)


def run(command: Sequence[str | Path], **options: Any) -> str:
    """Return the output of a command that must succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert not done.returncode, done.stderr[-4000:]
    return str(done.stdout)


def compile_program(
    folder: Path, source: Path, *flags: str, pair: tuple[str, str] | None = None, is_cpp: bool = False
) -> Path:
    """Compile an export with a program: everything as C11, or the parts that allow it and the program as C++17.

    A program that was compiled before is returned.
    """
    if not COMPILERS:
        pytest.skip("no C compiler")
    c, cpp = pair or COMPILERS[0]
    build = folder / f"build_{source.stem}_{c}_{is_cpp}_{abs(hash(flags))}"
    program = build / source.stem
    if program.exists():
        return program
    build.mkdir(exist_ok=True)
    objects = []
    evaluator = {"ckh_rank.c", "ckh_few.c", "ckh_trees.c", "ckh_tests.c", "ckh_sets.c"}
    sources = [path for path in sorted(folder.glob("ckh*.c")) if path != source]
    for path in (*sources, source):
        objects.append(build / f"{path.name}.o")
        # The evaluator is C alone; the rest is common to both languages.
        language = [cpp, "-x", "c++", "-std=c++17"] if is_cpp and path.name not in evaluator else [c, "-std=c11"]
        run(
            [
                *language,
                "-ffp-contract=off",
                "-D_POSIX_C_SOURCE=200809L",
                f"-I{folder}",
                *flags,
                "-c",
                path,
                "-o",
                objects[-1],
            ]
        )
    run([cpp if is_cpp else c, *flags, *objects, "-o", program, "-lm", "-lpthread"])
    return program


def line_of(problem: Any) -> str:
    """Format a problem as the program reads it."""
    kind = exported(operation_of_problem(problem).name).kind
    return line(kind.name, *kind.numbers(problem))


def line(kind: str, *numbers: int) -> str:
    """Format numbers, which need not be a valid problem, likewise."""
    return " ".join([kind, *map(str, numbers)])


def ask(program: Path, model: str | Path, lines: Sequence[str], cwd: Path | None = None) -> list[Found]:
    """Return an export's answers for problems."""
    out = run([program, model], input="\n".join(lines), cwd=cwd).splitlines()
    assert out[0].startswith("open 0 "), out[0]
    names = error_names(program.parents[1] / "ckh.h")
    result, at = [], 2
    while at < len(out):
        _, error, count = out[at].split()
        rows = [row.split() for row in out[at + 1 : at + 1 + int(count)]]
        numbers = [tuple(map(float.fromhex, row[1:])) for row in rows]
        result.append(Found(names[int(error)], [row[0] for row in rows], numbers))  # type: ignore[arg-type]
        at += 1 + int(count)
    return result


def error_names(header: Path) -> dict[int, str]:
    """Names of errors by number, from the header."""
    return {int(number): name for name, number in _ERROR.findall(header.read_text())}
