"""Shell completion for bash, zsh and fish, through the executable's own entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ckh.archs import arch_names
from ckh.cli import COMMANDS
from ckh.files.paths import data_dir
from ckh.ops import operation, operation_names

if TYPE_CHECKING:
    from pathlib import Path

CKH = [sys.executable, "-m", "ckh"]


def ask(shell: str, line: str, cwd: Path) -> list[str]:
    """Completions of the last word of a command line."""
    variables = {"_CKH_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, "COMP_WORDS": line}
    variables |= {"COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    environment = {name: value for name, value in os.environ.items() if name != "CKH_MODELS"} | variables
    environment["CKH_DATA_DIR"] = str(cwd / "user")
    done = subprocess.run(CKH, capture_output=True, text=True, env=environment, cwd=cwd, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ckh pred", ["predict"]),
        ("ckh validate or", ["oracle"]),
        ("ckh predict --probl", ["--problems"]),
        ("ckh predict --variant bwd_", ["bwd_data", "bwd_weight"]),
        ("ckh predict --op ", [*operation_names()]),
        ("ckh bench --op gr", ["grouped_conv"]),
        ("ckh predict --dtype bf", ["bf16", "bf8"]),
        ("ckh search --arch ", [*arch_names()]),
        ("ckh search measure --arch mi30", ["mi300a", "mi300x", "mi308x"]),
        ("ckh search me", ["measure"]),
        ("ckh predict --problems host-llm", ["host-llm"]),
        ("ckh evaluate --model ", [str(path) for path in sorted(data_dir("models").iterdir()) if path.is_dir()]),
    ],
)
def test_commands_options_and_values_complete(line: str, expected: list[str], tmp_path: Path) -> None:
    """Names of commands and options, and values of options: operations, types, architectures, sets, models."""
    assert sorted(ask("bash", line, tmp_path)) == sorted(expected)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_completions(shell: str, tmp_path: Path) -> None:
    """In the format of each shell."""
    text = " ".join(ask(shell, "ckh predict --arch gfx9", tmp_path))
    assert [name for name in arch_names() if name in text] == [name for name in arch_names() if name.startswith("gfx9")]


@pytest.mark.slow
def test_folders_complete_as_models(tmp_path: Path) -> None:
    """A model may be outside of the search path."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "minor.txt").touch()
    assert ask("bash", "ckh export --model mi", tmp_path) == ["mine/"]


@pytest.mark.slow
def test_sets_of_every_operation_complete(tmp_path: Path) -> None:
    """Whatever operation is given before or after."""
    names = {name for op in operation_names() for name in operation(op).problems.set_names()}
    assert set(ask("bash", "ckh bench --problems ", tmp_path)) == names


@pytest.mark.parametrize(("shell", "file"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", ".config/fish")])
def test_completion_is_installed(shell: str, file: str, tmp_path: Path) -> None:
    """`--install-completion` writes the file read by the shell when it starts; `--show-completion` prints it."""
    # Typer detects the running shell, unless this is disabled as in its own tests.
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [*CKH, "--install-completion", shell], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / file).exists()
    shown = subprocess.run(
        [*CKH, "--show-completion", shell], capture_output=True, text=True, env=environment, check=True
    ).stdout
    assert "_CKH_COMPLETE" in shown
    assert any(shown.strip() in path.read_text() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.slow
def test_every_command_can_be_completed(tmp_path: Path) -> None:
    """Each offers --help among its options."""
    for name in COMMANDS:
        assert "--help" in ask("bash", f"ckh {name} --h", tmp_path)
