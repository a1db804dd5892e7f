"""Files of mixtures of experts: canonical texts, one a line."""

from __future__ import annotations

from pathlib import Path

from ckh.errors import DataError, UsageError
from ckh.ops.aiter_moe.problem import AiterMoe, parse_aiter_moe
from ckh.untrusted import read_text


def load_problems(
    source: str, variant: str | None, dtype: str | None, _default_dtype: str = "fp8"
) -> tuple[AiterMoe, ...]:
    """The distinct problems of a file, in order.

    Raises:
        UsageError: there is no such file, or a direction was given.
        DataError: the file is unusable; the message names the line.
    """
    if variant is not None:
        raise UsageError("aiter_moe has no directions", "leave out --variant")
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"there is no file {source}", "name a .txt file of problems as ckh prints them")
    problems: dict[AiterMoe, None] = {}
    for line, text in enumerate(read_text(path).splitlines(), 1):
        content = text.partition("#")[0].strip()
        if not content:
            continue
        try:
            problem = parse_aiter_moe(content)
        except UsageError as error:
            raise DataError(f"{path}:{line}: {error.message}", error.hint) from error
        if dtype is not None and problem.dtype != dtype:
            raise DataError(f"{path}:{line}: the problem is of {problem.dtype}, not {dtype}")
        problems[problem] = None
    if not problems:
        raise DataError(f"{path} has no problem")
    return tuple(problems)
