"""Reports in headless Chromium, at two widths, light and dark, if it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.data.dataset import Dataset, write_dataset
from ckh.data.journal_records import EndRecord
from ckh.errors import ExitCode
from tests.learn.conftest import measured, saved, silent
from tests.runs import rows, start

if TYPE_CHECKING:
    from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
OPTIONS += ["--enable-logging=stderr", "--allow-file-access-from-files"]
CONSOLE = re.compile(r"CONSOLE[:(].*")
EVIL = "</td><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"
# What a page of ours may not contain, a script of the test, stands around it: in a page that shows it in a frame of
# some width.
AROUND = """<!doctype html><body style="margin:0">
<iframe id="page" src="{page}" style="border:0;width:{width}px;height:900px"></iframe><script>
const frame = document.getElementById("page");
const box = (one) => one.getBoundingClientRect();
frame.onload = () => {{
  const page = frame.contentDocument, root = page.documentElement;
  const shown = [...page.querySelectorAll("svg")].filter((one) => box(one).height > 0);
  const table = page.querySelector("table.data"), body = table?.tBodies[0];
  const column = (number) => [...body.rows].filter((row) => !row.hidden).map((row) => row.cells[number].textContent);
  const field = page.querySelector("input[type=search]");
  const found = {{
    width: root.clientWidth,
    scrolls: root.scrollWidth,
    labels: shown.map((one) => one.getAttribute("aria-label")),
    roles: shown.map((one) => one.getAttribute("role")),
    widths: shown.map((one) => box(one).width),
    drawn: shown.map((one) => [...one.querySelectorAll("path, use")].filter((part) => box(part).width > 0).length),
    least_text: Math.min(...shown.flatMap((one) => [...one.querySelectorAll("text")].map((text) => box(text).height))),
    tips: shown.reduce((sum, one) => sum + one.querySelectorAll("use > title, path > title").length, 0),
    titles: [...page.querySelectorAll("figure h2")].map((one) => one.textContent),
    paper: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    ink: frame.contentWindow.getComputedStyle(page.body).color,
    headings: page.querySelectorAll("h1").length,
    evil: frame.contentWindow.evil ?? null,
    heads: [...(table?.tHead.rows[0].cells ?? [])].map((cell) => cell.textContent),
    folded: [...page.querySelectorAll(".entries details")].filter((one) => !one.open).length,
    entries: page.querySelectorAll(".entries li").length,
    table_width: table ? box(table.closest(".scroll")).width : 0,
  }};
  const place = found.heads.indexOf("best ms");
  if (field !== null) {{
    const button = table.tHead.rows[0].cells[place].querySelector("button");
    button.click();
    found.descending = column(place);
    button.click();
    found.ascending = column(place);
    field.value = "{word}";
    field.dispatchEvent(new Event("input"));
    found.filtered = column(0);
    found.counted = page.querySelector("output").textContent;
  }}
  document.title = "found";
  document.body.textContent = JSON.stringify(found);
}};
</script></body>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The reports of a small model, a dataset whose device is called like markup, and a run."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    folder = tmp_path_factory.mktemp("report")
    silent(saved(folder / "model"))
    write_dataset(measured(), folder / "data.parquet")
    frame = measured().frame.assign(device=EVIL)
    write_dataset(Dataset(frame, measured().metadata), folder / "evil.parquet")
    whats = {
        "model": ["report", str(folder / "model"), "--among", "measured", "--data", str(folder / "data.parquet")],
        "data": ["report", str(folder / "evil.parquet")],
        "run": ["report", str(folder / "run")],
    }
    writer = start(str(folder / "run"))
    writer.add(*rows(60))
    writer.end_run(EndRecord("r", "complete", 1.0, {}))
    writer.close()
    for name, words in whats.items():
        assert run([*words, "--out", str(folder / f"{name}.html")]) == ExitCode.OK
    return {name: folder / f"{name}.html" for name in whats}


def browsed(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The DOM of a page after its scripts have run, and what the browser logs."""
    command = [str(CHROMIUM), *OPTIONS, f"--user-data-dir={page.parent / 'profile'}", *options]
    command += ["--virtual-time-budget=5000", "--window-size=1300,950", "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def seen(page: Path, width: int, *options: str) -> dict[str, Any]:
    """What a browser finds in the page at a width, with an empty console."""
    around = page.with_name("around.html")
    around.write_text(AROUND.format(page=page.as_uri(), width=width, word="i7x7"), encoding="utf-8")
    done = browsed(around, *options)
    assert CONSOLE.findall(done.stderr) == []
    body = re.search(r"<body[^>]*>(\{.*\})", done.stdout, re.DOTALL)
    assert body is not None, done.stdout[-500:]
    document: dict[str, Any] = json.loads(unescape(body[1]))
    return document


@pytest.mark.slow
def test_errors_on_the_console_are_seen(pages: dict[str, Path]) -> None:
    """A page whose script fails, or is forbidden, is detected."""
    bad = pages["model"].with_name("bad.html")
    for script in (
        "<script>nothing.at.all()</script>",
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\"><script>1</script>",
    ):
        bad.write_text(f"<!doctype html><body>{script}</body>", encoding="utf-8")
        assert CONSOLE.findall(browsed(bad).stderr)


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize(
    ("name", "figures", "marks", "tips"),
    [("model", 5, 4, 50), ("data", 6, 2, 50), ("run", 6, 2, -1)],  # one kind of failures
)
def test_a_page_fits_and_shows_every_figure(
    pages: dict[str, Path], name: str, figures: int, marks: int, tips: int, width: int
) -> None:
    """On a phone and on a screen: nothing is wider than the page, each figure is drawn, named and legible."""
    result = seen(pages[name], width)
    assert result["width"] == width
    assert result["scrolls"] == width
    assert len(result["titles"]) == figures
    assert len(result["labels"]) == figures
    assert all(label.startswith(title) for label, title in zip(result["labels"], result["titles"], strict=True))
    assert set(result["roles"]) == {"img"}
    assert all(drawn >= marks for drawn in result["drawn"])
    assert all(0.85 * 640 < item <= max(width, 640) for item in result["widths"])  # a phone scrolls its figures
    assert result["least_text"] >= 8
    assert result["headings"] == 1
    assert result["table_width"] <= width
    assert result["evil"] is None
    assert result["tips"] > tips


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model", "data"])
def test_tables_are_sorted_and_filtered(pages: dict[str, Path], name: str) -> None:
    """A click on a heading sorts, a second one reverses; rows without the words are hidden."""
    result = seen(pages[name], 1200)
    times = [float(text) for text in result["descending"]]
    assert len(times) == 14
    assert times == sorted(times, reverse=True)
    assert [float(text) for text in result["ascending"]] == sorted(times)
    wanted = {problem.canonical() for problem in measured().problems() if "i7x7" in problem.canonical()}
    assert set(result["filtered"]) == wanted
    assert re.findall(r"\d+", result["counted"]) == [str(len(wanted)), "14"]
    assert result["folded"] == result["entries"]


@pytest.mark.slow
def test_a_page_needs_no_script(pages: dict[str, Path]) -> None:
    """Without scripts the table is complete, and no control is shown."""
    page = pages["data"].with_name("plain.html")
    text = pages["data"].read_text(encoding="utf-8")
    page.write_text(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL), encoding="utf-8")
    result = seen(page, 390)
    assert "counted" not in result
    assert "best ms" in result["heads"]
    assert result["scrolls"] == 390


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model", "data", "run"])
def test_a_page_follows_the_dark_colour_scheme(pages: dict[str, Path], name: str) -> None:
    """Colours follow the browser's preference."""
    dark = seen(pages[name], 800, "--blink-settings=preferredColorScheme=0")
    light = seen(pages[name], 800, "--blink-settings=preferredColorScheme=1")
    assert (light["paper"], dark["paper"]) == ("rgb(254, 254, 254)", "rgb(20, 24, 29)")
    assert (light["ink"], dark["ink"]) == ("rgb(27, 31, 36)", "rgb(230, 233, 236)")
