"""Repository files: citation, issue forms, workflows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckh import __version__

ROOT = Path(__file__).parents[1]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


def test_the_citation_has_the_current_version() -> None:
    """CITATION.cff has ckh's version."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (\S+)$", text, re.MULTILINE) == [__version__]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_ask_for_the_archive_of_the_check(path: Path) -> None:
    """Each is valid YAML, requires the archive, and has unique field names."""
    yaml = pytest.importorskip("yaml")
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    fields = {item["id"]: item for item in form["body"]}
    assert len(fields) == len(form["body"]) >= 3
    assert "ckh doctor --check" in fields["check"]["attributes"]["label"]
    assert fields["check"]["validations"]["required"] is True


def test_public_ci_runs_what_ci_runs() -> None:
    """The workflow runs the scripts in .ci, and installs the wheel on every supported Python."""
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    commands = {step["run"].split()[0] for job in jobs.values() for step in job["steps"] if "run" in step}
    assert {".ci/run", ".ci/wheel"} <= commands
    assert all((ROOT / command).stat().st_mode & 0o100 for command in commands if command.startswith("."))
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (oldest,) = re.findall(r'^requires-python = ">=3\.(\d+)"$', metadata, re.MULTILINE)
    pythons = jobs["install"]["strategy"]["matrix"]["python"]
    assert pythons == [f"3.{minor}" for minor in range(int(oldest), int(oldest) + len(pythons))]
