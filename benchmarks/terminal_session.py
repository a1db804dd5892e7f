"""Records a terminal session on a model's GEMMs as an SVG, with the commands of README's MI300X part that need no GPU.

    python benchmarks/terminal_session.py [--out docs/pictures/session.svg]

Nothing is measured: `ckh tune` for CK Tile's kernels is a dry run, and AITER's tables are predicted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ckh.shapes.config import MODELS

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # which a browser would download
COLUMNS = 88
TITLE = "ckh on a machine without a GPU"
COMMANDS = (
    "ckh shapes config.json --tp 8 --tokens 16",
    "ckh predict --m 16 --n 1280 --k 8192 --arch gfx942 --top 2",
    "ckh tune config.json --tp 8 --tokens 16 --arch gfx942 --dtype fp8 --to aiter --out tables",
    "ckh tune config.json --tp 8 --tokens 16 --arch gfx942 --budget 15m --to amd-registry --dry-run",
)


def write_config(folder: Path) -> None:
    """Write the model's config.json, with the fields that decide its shapes."""
    name, config = MODELS["llama3-70b"]
    (folder / "config.json").write_text(json.dumps({"_name_or_path": name, **config}, indent=2), encoding="utf-8")


def recorded(folder: Path) -> str:
    """The session as an SVG: each command and what it prints."""
    own = {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "CKH_DATA_DIR": str(folder), "CKH_CACHE_DIR": str(folder)}
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in COMMANDS:
        args = [sys.executable, "-m", "ckh", *shlex.split(command)[1:]]
        done = subprocess.run(
            args,
            cwd=folder,
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        console.print(Text(f"$ {command}", style="bold green"))
        console.print(Text.from_ansi(done.stdout))
        console.print()
    return _FONTS.sub("", console.export_svg(title=TITLE))


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/session.svg"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_config(Path(folder))
        options.out.write_text(recorded(Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
