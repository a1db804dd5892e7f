"""README, CONTRIBUTING and the guides: links work, commands parse, paths exist, and outputs are current."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer

from ckh.cli import COMMANDS, build_app, run
from ckh.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("[a-z]*/README.md")])
GUIDES = [page for page in PAGES if page.name != "CHANGELOG.md"]  # former versions may have had other names

FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PROMPT = "$ "
SEPARATORS = {"&&", ";", "|"}
FOLDERS = ("ckh/", "tests/", "docs/", "benchmarks/", "data/", "models/", "archspecs/", ".ci/")
OTHERS = {"--install-completion", "--reliability"}  # options of Typer, and of the tests


@dataclass(frozen=True, slots=True)
class Shown:
    """A command line with the output shown below it."""

    page: str
    command: str
    output: str

    @property
    def judges(self) -> bool:
        """True for `ckh evaluate`, whose slices may be left out."""
        return self.command.startswith("ckh evaluate ")


def name_of(page: Path) -> str:
    """A page's path inside the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[str]:
    """Contents of code fences, with continued lines joined."""
    return [text.replace("\\\n", " ") for text in FENCE.findall(page.read_text(encoding="utf-8"))]


def spans(page: Path) -> list[str]:
    """Contents of backticks; a bar is escaped in tables."""
    return [text.replace("\\|", "|") for text in CODE.findall(FENCE.sub("", page.read_text(encoding="utf-8")))]


def command_lines(block: str) -> list[str]:
    """The commands of a block: lines with a prompt, or all if there is none."""
    lines = block.splitlines()
    prompted = [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]
    return prompted or lines


def calls_of_ckh(line: str) -> Iterator[list[str]]:
    """The arguments of each call of ckh in a shell line."""
    words = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    words.whitespace_split = True
    simple: list[list[str]] = [[]]
    for word in words:
        if word in SEPARATORS:
            simple.append([])
        else:
            simple[-1].append(word)
    for command in simple:
        while command and (command[0] == "time" or re.match(r"\w+=", command[0])):
            command.pop(0)
        if command[:1] == ["ckh"]:
            yield [word for word in command[1:] if word != "…"]


def shortened(part: str | list[str]) -> str:
    """Name of a page or a call in the test report."""
    return part if isinstance(part, str) else " ".join(part)


def written_calls() -> list[tuple[str, list[str]]]:
    """Page and arguments of each call of ckh in a code fence."""
    lines = [(name_of(page), line) for page in PAGES for block in blocks(page) for line in command_lines(block)]
    return [(page, call) for page, line in lines if "ckh " in line for call in calls_of_ckh(line)]


@cache
def options_of(*names: str) -> frozenset[str]:
    """The options of a command, or of a subcommand."""
    command = typer.main.get_command(build_app(names[:1]))
    for name in names:
        command = command.commands[name]  # type: ignore[attr-defined]
    own = frozenset(option for p in command.params for option in (*p.opts, *p.secondary_opts))
    return own | {"-h", "--help", "--help-all"}


@cache
def subcommands(name: str) -> tuple[str, ...]:
    """The subcommands of a command."""
    command = typer.main.get_command(build_app([name]))
    return tuple(getattr(command.commands.get(name), "commands", ()))  # type: ignore[attr-defined]


def unknown_in(call: list[str]) -> list[str]:
    """Words of a call that are neither a command nor an option of it, ignoring values."""
    names = call[:1] + [word for word in call[1:2] if word in subcommands(call[0])]
    if not call or call[0].startswith("-"):
        return [word for word in call if word.startswith("-") and word not in options_of() | OTHERS]
    if call[0] not in COMMANDS:
        return [call[0]]
    known = options_of(*names)
    return [word for word in call[1:] if word.startswith("-") and word.split("=")[0] not in known]


def shown_answers() -> list[Shown]:
    """Each call of `ckh predict` and `ckh evaluate` that is shown with its output."""
    result = []
    for page in PAGES:
        for block in blocks(page):
            command, _, output = block.removeprefix(PROMPT).partition("\n")
            if block.startswith((f"{PROMPT}ckh predict ", f"{PROMPT}ckh evaluate ")):
                result.append(Shown(name_of(page), command, output))
    return result


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub generates for a page's headings."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    """The file of each relative link exists, and so does its heading."""
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_paths_exist(page: Path) -> None:
    """Each named file of the repository, in text or in a command, exists; `<…>` and `*` match any text."""
    words = [word for text in spans(page) for word in text.split() if word.startswith(FOLDERS)]
    lines = [line for block in blocks(page) for line in command_lines(block)]
    words += [word for line in lines for word in line.split() if word.startswith(("benchmarks/", "tests/", ".ci/"))]
    missing = [word for word in words if not any(ROOT.glob(re.sub(r"<[^>]*>", "*", word.rstrip("/:,"))))]
    assert missing == []


@pytest.mark.parametrize(("page", "call"), written_calls(), ids=shortened)
def test_written_commands_parse(page: str, call: list[str]) -> None:
    """A call of ckh in a code fence has existing options, values of their kinds and all arguments; it is not run."""
    parse(page, call)


def parse(page: str, call: list[str]) -> None:
    """Parse a call as the command line does, without running it."""
    command = typer.main.get_command(build_app(call[:1]))
    while call[:1] and call[0] in getattr(command, "commands", ()):
        name, *call = call
        command = command.commands[name]  # type: ignore[attr-defined]
    command.make_context(page, call)


def test_the_commands_for_amds_scripts_parse() -> None:
    """Each row of the page has a whole command, with existing options and values of their kinds."""
    page = ROOT / "docs" / "amd-scripts.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    calls = [
        [call for text in CODE.findall(row) if text.startswith("ckh ") for call in calls_of_ckh(text)] for row in rows
    ]
    assert len(rows) >= 20
    for (call,) in calls:
        parse(page.name, call)


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_mentioned_commands_and_options_exist(page: Path) -> None:
    """The same for calls and options in running text, which may be parts of a call."""
    texts = spans(page)
    calls = [call for text in texts if text.startswith("ckh ") for call in calls_of_ckh(text)]
    assert [word for call in calls for word in unknown_in(call)] == []
    known = options_of().union(*(options_of(name) for name in COMMANDS), OTHERS)
    known = known.union(*(options_of(name, inner) for name in COMMANDS for inner in subcommands(name)))
    assert [text for text in texts if text.startswith("--") and re.split(r"[ =/]", text)[0] not in known] == []


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(shown_answer, marks=[pytest.mark.slow] if shown_answer.judges else [])
        for shown_answer in shown_answers()
    ],
    ids=lambda shown: f"{shown.page}: {shown.command}",
)
@pytest.mark.usefixtures("narrow")
def test_shown_output_is_current(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output below a call is that of the shipped models, on their CPU without a GPU; slices may be left out."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("CKH_MODELS", raising=False)
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "")  # no GPU
    monkeypatch.setattr("ckh.hardware.machine.processor_name", lambda: "AMD EPYC")  # of the host models' measurements
    assert run(shlex.split(shown.command)[1:]) == ExitCode.OK
    printed = capsys.readouterr().out.replace("\\\n", " ")  # as in `blocks`
    assert printed.startswith(shown.output)
    assert printed == shown.output or shown.judges


def test_the_guides_exist() -> None:
    """The tests above cover all guides, many calls, and the answers of README."""
    assert {"README.md", "CONTRIBUTING.md", "docs/results.md", "benchmarks/README.md"} <= {name_of(p) for p in PAGES}
    assert len(written_calls()) >= 30
    pages = [shown.page for shown in shown_answers()]
    assert (pages.count("README.md"), pages.count("docs/predict.md")) == (1, 3)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "validate"])
def test_every_command_has_the_wide_option(command: str) -> None:
    """--wide is an option of each command, and of each command of `validate`."""
    assert "--wide" in options_of(command)
    for name in ("oracle", "compare", "selection", "kernels"):
        assert "--wide" in options_of("validate", name)
    assert build_app([command])
