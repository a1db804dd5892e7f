"""docs/ci.md: the steps of its workflow, run by a shell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ckh.data.dataset import write_dataset
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from tests.learn.conftest import HOST, measured, problems, saved, silent

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"
STEP = re.compile(r"^ +- name: (.+)\n((?: +if: .+\n)?)( +)run: (\|\n(?:\3  .+\n)+|.+\n)", re.MULTILINE)


def steps() -> dict[str, str]:
    """Commands of the workflow's steps by name."""
    result = {}
    for name, _, _, text in STEP.findall(PAGE.read_text(encoding="utf-8")):
        result[name] = textwrap.dedent(text.removeprefix("|\n"))
    return result


def shell(text: str, folder: Path) -> int:
    """Exit code of a step, as run by CI, with this interpreter's ckh."""
    (folder / "bin").mkdir(exist_ok=True)
    ckh = folder / "bin" / "ckh"
    ckh.write_text(f'#!/bin/sh\nexec {sys.executable} -m ckh "$@"\n', encoding="utf-8")
    ckh.chmod(0o755)
    env = {**os.environ, "PATH": f"{ckh.parent}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(folder / "page.md")}
    return subprocess.run(["/bin/bash", "-eo", "pipefail", "-c", text], cwd=folder, env=env, check=False).returncode


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The files that the page requires: models, a hold-out and golden choices."""
    for name in ("current", "candidate"):
        silent(saved(tmp_path / "models" / name))
    write_dataset(measured(), tmp_path / "holdout.parquet")
    (tmp_path / "layers.txt").write_text(
        "".join(f"{problem.canonical()}\n" for problem in problems()), encoding="utf-8"
    )
    create = "ckh validate selection golden.json --create --problems layers.txt --model models/current"
    assert shell(create, tmp_path) == 0
    return tmp_path


@pytest.mark.slow
def test_the_workflow_passes_and_fails(repository: Path) -> None:
    """With an equal model all steps pass and the page has both verdicts; an unmeasured choice fails one."""
    install, compare, selection, show = steps().values()
    assert install.startswith("pip install ")
    # Only some kernels were measured in these data.
    compare = compare.replace("ckh validate compare", "ckh validate compare --among measured")
    assert [shell(step, repository) for step in (compare, selection, show)] == [0, 0, 0]
    page = (repository / "page.md").read_text(encoding="utf-8")
    assert page.count("## PASS") == 2
    assert sorted(path.name for path in (repository / "reports").glob("*.xml")) == ["compare.xml", "selection.xml"]

    path = repository / "golden.json"
    golden = json.loads(path.read_text(encoding="utf-8"))
    first = next(iter(golden["kernels"]))
    golden["kernels"][first] = kernel_name(conv_pool(Direction.FORWARD, HOST, 2)[1])  # not in the data
    path.write_text(json.dumps(golden), encoding="utf-8")
    for old in (repository / "reports").iterdir():
        old.unlink()
    assert shell(selection, repository) == 1
    assert "## FAIL" in (repository / "reports" / "selection.md").read_text(encoding="utf-8")
