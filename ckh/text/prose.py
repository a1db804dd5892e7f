"""Wrap sentences to the terminal, with commands that can be pasted."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_COLUMNS = 80  # without a terminal
_LEAST_COLUMNS = 40

# A command to copy, which extends to the end of its line, and its words; an option is joined to its value.
_COMMAND = re.compile(r"(?:^|(?<=: )|(?<=  ))(?:ckh [a-z]+|printf) ")
_SHELL_WORD = re.compile(r"(?:--[a-z-]+ (?=[^-&\s]))?(?:'[^']*'|\S)+")
_GOES_ON = " \\"
_LEAD = re.compile(r"(?:\S+ )?\S* {2,}")  # "model    ", "the model  ", or spaces

_whole = False  # whether text is not wrapped or shortened


@contextmanager
def whole_names(*, is_whole: bool) -> Iterator[None]:
    """Disable wrapping and shortening of tables and sentences for the duration of the context, if requested."""
    global _whole  # noqa: PLW0603 - one for the process, as its stdout
    before, _whole = _whole, is_whole
    try:
        yield
    finally:
        _whole = before


# Names, and options of commands, that ckh had, with what replaced them.
REMOVED = dict.fromkeys(
    ("miopen_conv", "miopen", "miopen-fdb", "miopen-fdb-parquet"),
    "MIOpen's solvers were removed: MIOpen ranks them itself; ckh ranks CK Tile's convolutions",
) | {
    "ckh bench --active": "use --plan auto --budget TIME, which selects the pairs before the run",
    "ckh bench --stop-gain": "it was for --active; use --plan auto --budget TIME",
    **dict.fromkeys(
        ("ckh tune --torch", "ckh tune --fuse-shared", "ckh tune --skip-bad"),
        "list the shapes first: ckh shapes … --out shapes.csv, and tune that file",
    ),
    "ckh bench --leaders": "omit it: the kernels within 8 % of the fastest, up to 12, are measured again",
    "ckh bench --rotating": "omit it, so that operands exceed the caches; --warm keeps one set in them",
    **dict.fromkeys(
        (
            "ckh bench --hipcc-flags",
            "ckh search measure --hipcc-flags",
            "ckh validate kernels --hipcc-flags",
            "ckh doctor --hipcc-flags",
        ),
        "name them with the compiler: --hipcc 'hipcc -O2'",
    ),
    "ckh train --tune": "give --trees, --leaves and --learning-rate; the defaults depend on the number of rows",
    "ckh train --mine": "it seldom helped; measure more problems like the hard ones",
    "ckh train --ensemble": "models are single; average the scores of several in Python",
    "ckh train --distributed": "omit it: data above --sample rows are sampled by problem",
    "ckh train --cluster": "omit it: ckh bench and ckh evaluate have --cluster",
    "ckh train --prior": "omit it: the operation's recipe sets it; --rank relative trains without",
    "ckh train --feature-fraction": "omit it, or give colsample_bytree to ckh.train in Python",
    **dict.fromkeys(
        ("ckh bench --verbose", "ckh bench -v"),
        "omit it: Dask's dashboard, whose address is printed at the start, shows each worker",
    ),
    **dict.fromkeys(("ckh bench --yes", "ckh bench -y"), "omit it: runs start at once; --dry-run prints the plan only"),
    "ckh predict --registry": "use --kernels FILE, which reads registries, too",
    "ckh convert --partition-rows": "omit it: one file of any length is read in parts",
    "ckh convert --num-cus": "name the GPU, e.g. --arch mi308x",
    "ckh shapes --num-cus": "name the GPU, e.g. --arch mi308x",
    "ckh shapes --list": "omit it: ckh shapes without a source lists models and networks",
    "lgbm": "use --to c; LightGBM's text is in a model's own folder, as model_TARGET.lgbm.gz",
    "ckh export --ordered": "choose the kernels with ckh search set, and name its registry with --registry",
    "ckh export --skip-unsupported": "omit it: problems without a row are listed, and the exit code is 5",
    "ckh export --variant": "omit it: problems state their direction",
    "ckh evaluate --labels": "omit it: the model states what it was trained on",
    "ckh validate compare --max-mean-loss": "use --max-loss mean=VALUE",
    "ckh validate compare --max-median-loss": "use --max-loss median=VALUE",
    "ckh validate compare --max-p10-loss": "use --max-loss p10=VALUE",
    "ckh validate compare --max-problem-loss": "use --max-loss problem=VALUE",
    "ckh validate kernels --out": "write the output of --json to a file",
    "ckh validate kernels --force": "it was for --out; write the output of --json to a file",
    "ckh validate oracle --max-unstable": "omit it: at most 20 % of the times may be unstable",
    "ckh validate oracle --min-mean": "use --fail-under mean_efficiency=VALUE",
    "ckh validate oracle --min-p10": "use --fail-under p10_efficiency=VALUE",
    "ckh validate oracle --seed": "omit it: the seed is fixed",
    "ckh report --learning-curve": "train on parts of the data with ckh train, and compare with ckh evaluate",
    "ckh report --over": "omit it: the heat map has the two sizes that vary most",
    "ckh report --every": "omit it: --watch updates the page every ten seconds",
}


def one_of(name: object, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """A hint with the known names, after the most similar one; of a removed name, what replaced it.

    Names in `also` are suggested, but not listed.
    """
    from difflib import get_close_matches

    if str(name) in REMOVED:
        return REMOVED[str(name)]
    names = list(known)
    listed = "one of " + ", ".join(names)
    alike = get_close_matches(str(name).lower(), [*names, *also], n=1)
    return f"did you mean {alike[0]}? {listed}" if alike else listed


def room(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal of a stream, stdout by default, or else 80; None (unlimited) within `whole_names`."""
    if _whole:
        return None
    try:
        descriptor = (stream or sys.stdout).fileno()
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(descriptor).columns)
    except (OSError, ValueError, AttributeError):
        columns = 0
    return max(columns or _COLUMNS, _LEAST_COLUMNS)


def prose(text: str, indent: int = 0, stream: TextIO | None = None) -> str:
    """Wrap sentences to the terminal, or else to 80 columns; within `whole_names` they are not wrapped.

    A longer word, such as a path, is a line of its own and not broken. The lines of a command at the end (`ckh …`) end
    with a backslash, so that it can be pasted.
    """
    columns = room(stream)
    if columns is None or len(text) <= columns:
        return text
    width = columns - indent
    head, rest = text[:indent], text[indent:]
    command = _COMMAND.search(rest)
    said = rest if command is None else rest[: command.start()]
    lines = filled(said.split(), width)
    if command is not None:
        words = _SHELL_WORD.findall(rest[command.start() :])
        begun = lines.pop() + " " if lines else ""
        first, *others = filled([begun + words[0], *words[1:]], width - len(_GOES_ON))
        lines += [*(f"{item}{_GOES_ON}" for item in (first, *others[:-1])), *others[-1:]] if others else [first]
    return head + ("\n" + " " * indent).join(lines)


def shell_word(text: object) -> str:
    """A word of a command to copy: quoted for the shell if needed; unprintable bytes are escaped."""
    import shlex

    word = str(text)
    if word.isprintable() and "'" not in word:
        return shlex.quote(word)
    escaped = re.sub(rb"[^\w/.+-]", lambda result: b"\\x%02x" % ord(result[0]), os.fsencode(word))
    return f"$'{escaped.decode()}'"


def paragraphs(text: str) -> str:
    """Wrap lines as `prose`, with continuation lines indented to the second column of each, or its beginning."""
    return "\n".join(prose(line, len(matched[0]) if (matched := _LEAD.match(line)) else 0) for line in text.split("\n"))


def filled(words: Sequence[str], width: int) -> list[str]:
    """Wrap words; a longer word is a line of its own."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
