"""Files and lines of each operation: Python and C++ of its folder, without blank lines.

python benchmarks/operation_lines.py
"""

from __future__ import annotations

from pathlib import Path

OPERATIONS = Path(__file__).parents[1] / "ckh" / "ops"


def lines_of(path: Path) -> int:
    """Lines of a file that are not blank."""
    return sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    """Print a row per operation."""
    print(f"{'operation':16s}{'files':>6s}{'lines':>7s}")
    for record in sorted(OPERATIONS.glob("*/operation.py")):
        files = [path for path in record.parent.rglob("*") if path.suffix in {".py", ".hpp"}]
        print(f"{record.parent.name:16s}{len(files):6d}{sum(map(lines_of, files)):7d}")


if __name__ == "__main__":
    main()
