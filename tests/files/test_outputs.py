"""The rule for outputs of commands: they are written completely or not at all."""

from __future__ import annotations

import ast
import csv
import errno
import os
import re
import subprocess
from pathlib import Path

import pytest

from ckh.data.journal import JournalWriter
from ckh.errors import OutputError, UsageError
from ckh.files import outputs
from ckh.files.child import code_command
from ckh.files.outputs import FileKind, FolderKind, check_output, open_output, write_folder, write_output
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.shapes.layers import WeightedProblem
from ckh.shapes.problems import shapes_of
from ckh.shapes.tables import table_text
from tests.refusals import expect_refusal, expect_values

LETTER = FileKind("letter", lambda path: path.read_bytes().startswith(b"Dear"))
ALBUM = FolderKind(
    "album", lambda path: (lambda name: name.endswith((".jpg", "cover"))) if (path / "cover").exists() else None
)


def tree(folder: Path) -> dict[str, bytes]:
    """All files in a folder, hidden ones too, with their contents."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """An album with one picture."""
    write_folder(tmp_path / "album", [("cover", b"c"), ("deep/1.jpg", b"1")])
    return tmp_path / "album"


def test_a_new_path_needs_no_force_and_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file or folder below missing folders is accepted; checking creates nothing."""
    monkeypatch.chdir(tmp_path)
    for out in (Path("new"), Path("some/new/place"), tmp_path / "other"):
        check_output(out, LETTER, force=False)
        check_output(out, ALBUM, force=False)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output_needs_force(tmp_path: Path, album: Path) -> None:
    """The same kind is replaced only with force, as the hint states. An empty folder needs none."""
    letter, empty = tmp_path / "letter", tmp_path / "empty"
    letter.write_bytes(b"Dear Ann")
    empty.mkdir()
    for path, kind in ((letter, LETTER), (album, ALBUM)):
        check_output(path, kind, force=True)
        with pytest.raises(UsageError, match=f"{path} exists") as caught:
            check_output(path, kind, force=False)
        assert f"replace this {kind.name} with --force" in caught.value.hint
    check_output(empty, ALBUM, force=False)


def test_only_the_same_kind_is_replaced(tmp_path: Path, album: Path) -> None:
    """Force replaces no file or folder of another kind, nor a folder with a single foreign file."""
    thesis, pipe = tmp_path / "thesis.tex", tmp_path / "pipe"
    thesis.write_bytes(b"Never again")
    os.mkfifo(pipe)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "note").write_bytes(b"n")
    cases: list[tuple[Path, FileKind | FolderKind, str]] = [
        (thesis, LETTER, "not a valid letter"),
        (thesis, ALBUM, "it is not a folder"),
        (album, LETTER, "it is not an ordinary file"),
        (pipe, LETTER, "it is not an ordinary file"),
        (tmp_path / "folder", ALBUM, "not a valid album"),
    ]
    for path, kind, why in cases:
        with expect_refusal(UsageError, "foreign-output", path, why):
            check_output(path, kind, force=True)
    for foreign in ("deep/.diary", "link"):
        (album / foreign).symlink_to(thesis)
        with expect_refusal(UsageError, "foreign-output", foreign):
            check_output(album, ALBUM, force=True)
        (album / foreign).unlink()
    check_output(album, ALBUM, force=True)


def test_an_input_is_never_an_output(tmp_path: Path, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same name, another path, either kind of link, inside an input folder, or around one."""
    monkeypatch.chdir(tmp_path)
    letter = tmp_path / "letter"
    letter.write_bytes(b"Dear Ann")
    Path("soft").symlink_to(letter)
    os.link(letter, "hard")
    Path("folder").mkdir()
    os.link(letter, "folder/inside")
    for out, source in (
        (letter, letter),
        (Path("letter"), letter),
        (Path("album/../letter"), letter),
        (Path("soft"), letter),
        (letter, Path("soft")),
        (Path("hard"), letter),
        (Path("folder/inside"), letter),
        (letter, Path("folder")),
    ):
        with expect_refusal(UsageError, "unsafe-output", out):
            check_output(out, LETTER, force=True, inputs=[Path("missing"), source])
    with expect_refusal(UsageError, "unsafe-output", "album", "album/deep/1.jpg"):
        check_output(Path("album"), ALBUM, force=True, inputs=[Path("album/deep/1.jpg")])


def test_an_unwritable_output_is_detected_early(tmp_path: Path, album: Path) -> None:
    """Below a file, with a name too long, or on a read-only file system: one line with the reason."""
    (tmp_path / "file").write_bytes(b"")
    for out, why in (
        (tmp_path / "file" / "out", "Not a directory"),
        (tmp_path / ("n" * 300), "File name too long"),
        (Path("/proc/ckh/out"), ""),
    ):
        for kind in (LETTER, ALBUM):
            with expect_refusal(OutputError, "unwritable", out, why):
                check_output(out, kind, force=False)


def test_the_current_folder_is_not_replaced(album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any kind, empty or not: the shell is in it."""
    monkeypatch.chdir(album / "deep")
    for out in (Path(), Path(".."), album):
        with expect_refusal(UsageError, "unsafe-output", "--out"):
            check_output(out, ALBUM, force=True)


def test_folders_are_replaced_whole(tmp_path: Path, album: Path) -> None:
    """No old content and no other file or folder remains; parents are created."""
    write_folder(album, [("cover", b"2")])
    assert tree(tmp_path) == {"album/cover": b"2"}
    write_folder(tmp_path / "a" / "b", [("x", b"x")])
    assert tree(tmp_path) == {"album/cover": b"2", "a/b/x": b"x"}


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_failure_leaves_the_old_output(
    tmp_path: Path, album: Path, can_exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing write or rename is an error; the old folder is complete, without other files."""
    before = tree(tmp_path)
    if not can_exchange:
        monkeypatch.setattr(outputs, "_exchange", lambda _one, _other: False)
    with expect_refusal(OutputError, "unwritable"):
        write_folder(album, [("a", b"2"), ("a/b", b"3")])
    assert tree(tmp_path) == before

    def fail(path: Path, to: Path) -> None:
        if to == album and "old" not in path.suffix:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(path, to)

    rename = Path.rename
    with monkeypatch.context() as patch:
        if can_exchange:
            patch.setattr(outputs, "_exchange", fail)
        else:
            patch.setattr(Path, "rename", fail)
        with pytest.raises(OutputError, match="Input/output error"):
            write_folder(album, [("cover", b"2")])
    assert tree(tmp_path) == before


def test_a_file_system_without_exchange_replaces_too(
    tmp_path: Path, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two renames replace the exchange, and leave no other files."""
    monkeypatch.setattr(outputs, "_exchange", lambda _one, _other: False)
    write_folder(album, [("cover", b"2")])
    assert tree(tmp_path) == {"album/cover": b"2"}


def test_a_folder_is_exchanged_in_one_step(tmp_path: Path, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name exists at every moment: a kill leaves either the old or the new folder."""
    seen = []
    exchange = outputs._exchange

    def watched(path: Path, other: Path) -> bool:
        seen.append(tree(album))
        done = exchange(path, other)
        seen.append(tree(album))
        return done

    monkeypatch.setattr(outputs, "_exchange", watched)
    write_folder(album, [("cover", b"2")])
    assert seen == [{"cover": b"c", "deep/1.jpg": b"1"}, {"cover": b"2"}]


def test_output_of_a_concurrent_process_is_not_replaced(tmp_path: Path) -> None:
    """Output that appeared meanwhile stays, and the result is kept beside it."""
    letter, album = tmp_path / "letter.txt", tmp_path / "album"
    check_output(letter, LETTER, force=False)
    check_output(album, ALBUM, force=False)
    letter.write_bytes(b"Dear Ann")
    album.mkdir()
    (album / "cover").write_bytes(b"1")
    for content in (b"Dear Bob", b"Dear Cy"):
        with expect_refusal(UsageError, "written-meanwhile", "letter.txt") as caught:
            write_output(letter, content)
    expect_values(caught.value.hint, tmp_path / "letter-3.txt")
    with expect_refusal(UsageError, "written-meanwhile") as caught:
        write_folder(album, [("cover", b"2")])
    expect_values(caught.value.hint, tmp_path / "album-2")
    first = {"letter.txt": b"Dear Ann", "album/cover": b"1"}
    assert tree(tmp_path) == first | {
        "letter-2.txt": b"Dear Bob",
        "letter-3.txt": b"Dear Cy",
        "album-2/cover": b"2",
    }
    check_output(tmp_path / "twice", LETTER, force=False)
    for content in (b"Dear Cy", b"Dear Di"):  # what the work itself wrote, it may replace
        write_output(tmp_path / "twice", content)
    assert (tmp_path / "twice").read_bytes() == b"Dear Di"


def test_a_file_system_without_links_takes_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename is used there."""

    def no_link(_one: Path, _other: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_link)
    check_output(tmp_path / "letter", LETTER, force=False)
    write_output(tmp_path / "letter", b"Dear Ann")
    assert tree(tmp_path) == {"letter": b"Dear Ann"}


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """An error while writing leaves the old content and no other file; a symbolic link is kept."""
    path, link = tmp_path / "new" / "letter", tmp_path / "link"
    write_output(path, b"Dear Ann")
    link.symlink_to(path)
    write_output(link, b"Dear Bob")
    assert link.is_symlink()

    def write_half() -> None:
        with open_output(path) as file:
            file.write(b"Dear")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with expect_refusal(OutputError, "unwritable", "No space left"):
        write_half()
    assert tree(tmp_path) == {"new/letter": b"Dear Bob", "link": b"Dear Bob"}


@pytest.mark.skipif(os.geteuid() != 0, reason="links of other users are root's to make")
@pytest.mark.parametrize("target", ["victim", "none"])
def test_links_of_other_users_in_tmp_are_not_followed(tmp_path: Path, target: str) -> None:
    """Dangling or not, they are refused before the work and at writing; own links are followed."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    (tmp_path / "victim").mkdir()
    link = shared / "out"
    link.symlink_to(tmp_path / target)
    os.chown(link, 54321, 54321, follow_symlinks=False)
    for attempt in (
        lambda: check_output(link, LETTER, force=True),
        lambda: check_output(link / "deeper", ALBUM, force=False),
        lambda: write_output(link, b"Dear Ann"),
        lambda: write_folder(link, [("cover", b"c")]),
        lambda: write_output(link / "letter", b"Dear Ann"),
        lambda: JournalWriter(link),
    ):
        with expect_refusal(OutputError, "unsafe-output", link) as caught:
            attempt()
        assert caught.value.hint
    assert tree(tmp_path) == {}
    assert not (tmp_path / "none").exists()
    os.chown(link, 0, 0, follow_symlinks=False)
    write_folder(link, [("cover", b"c")])
    assert tree(tmp_path / target) == {"cover": b"c"}


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users are root's to make")
def test_files_of_other_users_in_tmp_are_not_replaced(tmp_path: Path) -> None:
    """Not with force either, as Linux refuses to open them (fs.protected_regular); one's own are."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    letter = shared / "letter"
    letter.write_bytes(b"Dear Ann")
    os.chown(letter, 54321, 54321)
    with expect_refusal(OutputError, "unsafe-output", letter):
        check_output(letter, LETTER, force=True)
    with expect_refusal(OutputError, "unsafe-output", letter):
        write_output(letter, b"Dear Bob", replace=True)
    os.chown(letter, 0, 0)
    check_output(letter, LETTER, force=True)
    write_output(letter, b"Dear Bob")
    assert tree(shared) == {"letter": b"Dear Bob"}


def test_what_was_not_checked_replaces_nothing(tmp_path: Path) -> None:
    """A writer without a check only writes where nothing exists; files and folders that exist stay as they are."""
    letter, album = tmp_path / "letter", tmp_path / "album"
    letter.write_bytes(b"Dear Ann")
    album.mkdir()
    (album / "cover").write_bytes(b"1")
    before = tree(tmp_path)
    with expect_refusal(UsageError, "output-exists"):
        write_output(letter, b"Dear Bob")
    for folder in (album, letter):
        with expect_refusal(UsageError, "output-exists"):
            write_folder(folder, [("cover", b"2")])
    assert tree(tmp_path) == before


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_a_killed_process_left_is_removed(tmp_path: Path, is_folder: bool) -> None:
    """The next one that writes the output removes it; not what a living process has locked, nor other hidden names."""
    target = tmp_path / "album"
    code = (
        "import sys; from pathlib import Path; from ckh.files.paths import new_beside\n"
        f"with new_beside(Path(sys.argv[1]), is_folder={is_folder}) as (part, _): print(part, flush=True); input()"
    )
    processes = [
        subprocess.Popen(
            code_command(code, str(target)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for _ in range(2)
    ]
    killed, alive = (Path(process.stdout.readline().strip()) for process in processes if process.stdout)
    processes[0].kill()
    processes[0].communicate()
    others = [tmp_path / name for name in (".album.backup", f".album.{'x' * 16}", f".other.{'0' * 16}")]
    for other in others:
        other.write_bytes(b"")
    if is_folder:
        (killed / "deep").mkdir()
        (killed / "deep" / "1.jpg").write_bytes(b"1")
        write_folder(target, [("cover", b"c")])
    else:
        write_output(target, b"Dear Ann")
    assert set(tmp_path.iterdir()) == {target, alive, *others}
    processes[1].communicate("\n")
    assert set(tmp_path.iterdir()) == {target, *others}


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users are root's to make")
def test_what_other_users_left_stays(tmp_path: Path) -> None:
    """A hidden file of another user, and a link to a file of one's own, are not removed."""
    foreign, link, own = (tmp_path / name for name in (f".letter.{'0' * 16}", f".letter.{'1' * 16}", "own"))
    foreign.write_bytes(b"")
    os.chown(foreign, 54321, 54321)
    own.write_bytes(b"mine")
    link.symlink_to(own)
    write_output(tmp_path / "letter", b"Dear Ann")
    assert foreign.exists()
    assert link.is_symlink()
    assert own.read_bytes() == b"mine"


_WRITERS = {"write_text", "write_bytes", "write_atomic", "open_atomic", "symlink_to", "copyfile", "copytree", "move"}
_MODES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|[( =]['\"][rbt+]*[wax][rbt+]*['\"]")
# Modules that write other files than outputs. All others write by `open_output`, `write_output` and `write_folder`.
_NO_OUTPUTS = {
    "temporary folders": {
        *(
            "bench.supervision.checkup",
            "bench.compilation.compile",
            "bench.compilation.toolchain",
        ),
        *("cluster.connection", "integrations.parity"),
        *("learn.judging.calibrate", "ops.aiter.checking", "ops.aiter.lookup_script"),
    },
    "the cache": {
        *("bench.compilation.kernel_cache", "bench.devices.hip_device", "bench.supervision.remote", "kernels.compiled"),
        *("quick.prepare", "quick.printed", "ranking.forest_file"),
    },
    "the folder of user data": {"learn.answers.probes"},
    "/dev/null, memory": {"boundary", "bench.supervision.guard", "commands.doctor.check"},
    "a file that a variable of the tests names": {"emulator.launch"},
    "journals, which are appended to and have the same checks": {"data.journal"},
}


def _is_writer(path: Path) -> bool:
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    names = ((call, getattr(call.func, "attr", getattr(call.func, "id", ""))) for call in calls)
    return any(
        name in _WRITERS or (name in {"open", "fdopen"} and _MODES.search(ast.unparse(call))) for call, name in names
    )


@pytest.mark.slow
def test_outputs_have_one_writer() -> None:
    """No module writes a file that a user names in another way than by the functions that hold the rule."""
    package = Path(outputs.__file__).parents[1]
    words = re.compile("|".join([*_WRITERS, _MODES.pattern]))
    paths = (path for path in package.rglob("*.py") if path.parent.name != "files")
    writers = {path for path in paths if words.search(path.read_text(encoding="utf-8")) and _is_writer(path)}
    names = {".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__") for path in writers}
    assert names == set[str]().union(*_NO_OUTPUTS.values())


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "@SUM(1)", "+1", "-2", "'=1"])
def test_names_of_layers_are_no_formulas(name: str, tmp_path: Path) -> None:
    """In a list of shapes, whose cells a spreadsheet would evaluate; ckh reads the same names from it."""
    shape = WeightedProblem("gemm_universal", GemmProblem(8, 8, 8), 1, (name, "=other"), "")
    cell = next(csv.reader([table_text([shape]).splitlines()[1]]))[2]
    assert cell == f"'{name} =other"
    path = tmp_path / "shapes.csv"
    path.write_text(table_text([shape]), encoding="utf-8")
    assert shapes_of([str(path)]).problems[0].layers == (name, "=other")
