"""Discovery of hipcc and CK Tile's headers: precedence, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ckh.bench.codegen.ck_tile import Interface
from ckh.bench.compilation import hip_toolchain
from ckh.bench.compilation.hip_toolchain import (
    all_flags,
    compiler_warning,
    find_ck_tile,
    find_hipcc,
)
from ckh.bench.compilation.toolchain import Compiler
from ckh.errors import DeviceError
from tests.bench.fake_hipcc import FakeHipcc, write_headers
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from pathlib import Path

PLACES = ("flag", "HIPCC", "ROCM_PATH", "PATH", "opt")


@pytest.fixture
def opt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that replaces /opt/rocm."""
    monkeypatch.setattr(hip_toolchain, "_DEFAULT_ROCM", str(tmp_path / "opt"))
    return tmp_path / "opt"


def test_the_first_place_that_has_a_compiler_wins(tmp_path: Path, opt: Path) -> None:
    """The flag precedes HIPCC, ROCM_PATH, PATH and /opt/rocm; if ROCM_PATH has none, the next is used."""
    result = {place: FakeHipcc(version=place).write(tmp_path / place / "bin/hipcc") for place in PLACES}
    environ = {
        "HIPCC": str(result["HIPCC"]),
        "ROCM_PATH": str(tmp_path / "ROCM_PATH"),
        "PATH": f"/usr/bin:/bin:{tmp_path}/PATH/bin",
    }
    flag: str | None = str(result["flag"])
    for place in PLACES:
        assert find_hipcc(flag, environ) == Compiler((str(result[place]),), place)
        flag = None
        match place:
            case "HIPCC":
                environ["HIPCC"] = ""
            case "ROCM_PATH":
                result["ROCM_PATH"].unlink()
            case "PATH":
                environ["PATH"] = "/usr/bin:/bin"
    result["opt"].unlink()
    with pytest.raises(DeviceError) as caught:
        find_hipcc(None, environ)
    assert caught.value.code == "no-compiler"
    expect_values(caught.value.message, "hipcc", "ROCM_PATH", "PATH", opt)
    assert "--hipcc" in caught.value.hint


def test_a_compiler_may_have_arguments(tmp_path: Path) -> None:
    """Arguments after the program are passed on, and a program in PATH needs no path."""
    FakeHipcc().write(tmp_path / "bin/my-hipcc")
    environ = {"HIPCC": "my-hipcc --verbose '-DNAME=a b'", "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    # The fake prints its version only if that is the only argument.
    (tmp_path / "bin/my-hipcc").write_text("#!/bin/sh\necho $# arguments\n", encoding="utf-8")
    expected = (str(tmp_path / "bin/my-hipcc"), "--verbose", "-DNAME=a b")
    assert find_hipcc(None, environ) == Compiler(expected, "3 arguments")


def test_rocm_may_be_in_a_folder_with_a_space(tmp_path: Path, opt: Path) -> None:
    """ROCM_PATH is a path and not a command line."""
    path = FakeHipcc().write(tmp_path / "my rocm/bin/hipcc")
    environ = {"ROCM_PATH": str(tmp_path / "my rocm"), "PATH": "/usr/bin:/bin"}
    assert find_hipcc(None, environ).command == (str(path),)


@pytest.mark.parametrize("text", ["/nonexistent/hipcc", "missing-hipcc", "'", "false", "''", "  "])
def test_a_wrong_compiler_is_one_clear_line(text: str) -> None:
    """A requested one that does not run is refused by name; no other is used instead."""
    for wanted, environ in ((text, {"HIPCC": "true"}), (None, {"HIPCC": text})):
        with pytest.raises(DeviceError) as caught:
            find_hipcc(wanted, {"PATH": "/usr/bin:/bin", **environ})
        assert caught.value.code == "no-compiler"
        expect_values(caught.value.message, text)
        assert "HIPCC" in caught.value.hint


def test_a_broken_rocm_compiler_is_not_skipped(tmp_path: Path, opt: Path) -> None:
    """A failing hipcc of ROCM_PATH is reported, though PATH has another."""
    broken = tmp_path / "rocm/bin/hipcc"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    FakeHipcc().write(tmp_path / "bin/hipcc")
    environ = {"ROCM_PATH": str(tmp_path / "rocm"), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    with expect_refusal(DeviceError, "no-compiler", "rocm/bin/hipcc"):
        find_hipcc(None, environ)


def test_the_first_place_that_has_headers_wins(tmp_path: Path, opt: Path) -> None:
    """The flag precedes CK_TILE_INCLUDE, ROCM_PATH, the compiler's ROCm and /opt/rocm."""
    places = ("flag", "CK_TILE_INCLUDE", "ROCM_PATH", "compiler", "opt")
    for place in places:
        write_headers(tmp_path / place / "include")
    # Links to the compiler, such as /usr/bin/hipcc, are followed.
    real = FakeHipcc().write(tmp_path / "compiler/bin/hipcc")
    (tmp_path / "link").symlink_to(real)
    hipcc = Compiler((str(tmp_path / "link"),), "1")
    environ = {"CK_TILE_INCLUDE": f"{tmp_path}/CK_TILE_INCLUDE/include", "ROCM_PATH": f"{tmp_path}/ROCM_PATH"}
    flag: str | None = f"{tmp_path}/flag/include"
    for place in places:
        headers = find_ck_tile(flag, hipcc, environ)
        assert (headers.include, headers.interface) == (tmp_path / place / "include", Interface.MID_2025)
        flag = None
        if place == "CK_TILE_INCLUDE":
            environ["CK_TILE_INCLUDE"] = ""
        elif place in ("ROCM_PATH", "compiler"):
            (tmp_path / place / "include/ck_tile").rename(tmp_path / place / "gone")


def test_missing_headers_are_reported_with_search_paths(tmp_path: Path, opt: Path) -> None:
    """All searched folders are named; a compiler at the root of the file system has none."""
    hipcc = Compiler((str(tmp_path / "bin/hipcc"),), "1")
    with pytest.raises(DeviceError) as caught:
        find_ck_tile(None, hipcc, {"ROCM_PATH": f"{tmp_path}/rocm"})
    folders = [tmp_path / "rocm/include", tmp_path / "include", opt / "include"]
    assert caught.value.code == "no-headers"
    expect_values(caught.value.message, *folders)
    assert "--ck-include" in caught.value.hint
    with expect_refusal(DeviceError, "no-headers"):
        find_ck_tile(None, Compiler(("/hipcc",), "1"), {})


@pytest.mark.parametrize("variable", [False, True])
def test_a_wrong_folder_of_headers_is_refused(tmp_path: Path, opt: Path, variable: bool) -> None:
    """A requested one is not replaced by ROCm's, which is complete."""
    write_headers(opt / "include")
    wanted, environ = (None, {"CK_TILE_INCLUDE": str(tmp_path)}) if variable else (str(tmp_path), {})
    with expect_refusal(DeviceError, "no-headers"):
        find_ck_tile(wanted, Compiler(("/usr/bin/hipcc",), "1"), environ)


@pytest.mark.parametrize(
    ("version", "warns"),
    [
        ("HIP version: 5.2 (Debian headers); Debian clang version 19.1.7 (3~deb12u1)", True),
        ("HIP version: 7.0.51831; AMD clang version 20.0.0git (roc-7.0.0)", False),
        ("HIP version: 6.4.43484-9999; Debian clang version 21.1.8 (14)", False),
        ("g++ (GCC) 19.0", False),
        ("clang version 190.1", False),
    ],
)
def test_clang_19_gives_a_warning(version: str, warns: bool) -> None:
    """It moves barriers in GPU code; the advice names an unaffected compiler."""
    warning = compiler_warning(Compiler(("hipcc",), version))
    assert bool(warning) is warns
    assert not warns or ("clang 19 moves barriers" in warning and "clang 20 or newer" in warning)


CK_OPTIONS = (
    *("-mllvm", "-enable-noalias-to-md-conversion=0", "-fno-offload-uniform-block", "-mllvm", "--lsr-drop-solution=1"),
    *("-mllvm", "-enable-post-misched=0", "-mllvm", "-amdgpu-function-calls=false"),
)


def compiler_that_refuses(option: str, folder: Path) -> Compiler:
    """A fake compiler that does not know an option."""
    return find_hipcc(str(FakeHipcc(refuses=option).write(folder / "hipcc")), {"PATH": "/usr/bin:/bin"})


def test_options_of_cks_build_are_passed_where_the_compiler_accepts_them(tmp_path: Path) -> None:
    """An unknown one is omitted with its -mllvm, the others are passed; none inlines everything early."""
    assert all_flags(compiler_that_refuses("nothing", tmp_path / "all")) == CK_OPTIONS
    refused = CK_OPTIONS.index("--lsr-drop-solution=1")
    some = all_flags(compiler_that_refuses("--lsr-drop", tmp_path / "some"))
    assert some == (*CK_OPTIONS[: refused - 1], *CK_OPTIONS[refused + 1 :])


@pytest.mark.parametrize(
    ("hipcc", "program", "arguments"),
    [
        (("hipcc", "-O2", "-mllvm", "-a=b"), ("hipcc",), ("-O2", "-mllvm", "-a=b")),
        (("ccache", "hipcc", "-DNAME=a b"), ("ccache", "hipcc"), ("-DNAME=a b",)),
        (("hipcc",), ("hipcc",), ()),
    ],
)
def test_arguments_of_the_compiler_follow_the_flags(
    hipcc: tuple[str, ...], program: tuple[str, ...], arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """So that they override those that ckh gives."""
    compiler = Compiler(hipcc, "1")
    assert (compiler.program, compiler.arguments) == (program, arguments)
    (accepting,) = compiler_that_refuses("nothing", tmp_path).command
    assert all_flags(Compiler((accepting, *arguments), "1")) == CK_OPTIONS + arguments


def test_a_killed_compiler_says_nothing_about_an_option(tmp_path: Path) -> None:
    """Its options are not omitted, which would be another identity of the device."""
    program = tmp_path / "hipcc"
    program.write_text("#!/bin/sh\nkill -9 $$\n", encoding="utf-8")
    program.chmod(0o755)
    with expect_refusal(DeviceError, "no-compiler", program):
        all_flags(Compiler((str(program),), "1"))
