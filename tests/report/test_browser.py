"""A report's page in a real browser, at two widths: Chromium without a window, where it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.data.dataset import write_dataset
from ckh.errors import ExitCode
from tests.commands.test_validate import silent
from tests.learn.conftest import measured, saved

if TYPE_CHECKING:
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
# What a page of ours may not contain, a script, stands around it: in a page that shows it in a frame of some width.
AROUND = """<!doctype html><body style="margin:0">
<iframe id="page" src="{page}" style="border:0;width:{width}px;height:900px"></iframe><script>
const frame = document.getElementById("page");
frame.onload = () => {{
  const page = frame.contentDocument, root = page.documentElement, shown = [...page.querySelectorAll("svg")].filter(
    one => one.getBoundingClientRect().height > 0);
  const found = {{
    width: root.clientWidth,
    scrolls: root.scrollWidth,
    labels: shown.map(one => one.getAttribute("aria-label")),
    roles: shown.map(one => one.getAttribute("role")),
    widths: shown.map(one => one.getBoundingClientRect().width),
    drawn: shown.map(one => [...one.querySelectorAll("path, use")].filter(
      part => part.getBoundingClientRect().width > 0).length),
    least_text: Math.min(...shown.flatMap(one => [...one.querySelectorAll("text")].map(
      text => text.getBoundingClientRect().height))),
    titles: [...page.querySelectorAll("figure h2")].map(one => one.textContent),
    paper: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    headings: page.querySelectorAll("h1").length,
  }};
  document.title = "found";
  document.body.textContent = JSON.stringify(found);
}};
</script></body>"""


@pytest.fixture(scope="module")
def report_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small model."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    folder = tmp_path_factory.mktemp("report")
    silent(saved(folder / "model"))
    write_dataset(measured(), folder / "data.parquet")
    data = str(folder / "data.parquet")
    args = [
        "report",
        str(folder / "model"),
        "--among",
        "measured",
        "--data",
        data,
        "--out",
        str(folder / "report.html"),
    ]
    assert run(args) == ExitCode.OK
    return folder / "report.html"


def seen(page: Path, width: int, *options: str) -> dict[str, Any]:
    """What a browser finds in the page at a width."""
    around = page.with_name("around.html")
    around.write_text(AROUND.format(page=page.as_uri(), width=width), encoding="utf-8")
    command = [str(CHROMIUM), *OPTIONS, f"--user-data-dir={page.parent / 'profile'}", "--allow-file-access-from-files"]
    command += [*options, "--virtual-time-budget=5000", "--window-size=1300,950", "--dump-dom", around.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    body = re.search(r"<body[^>]*>(\{.*\})", dom, re.DOTALL)
    assert body is not None, dom[-500:]
    found: dict[str, Any] = json.loads(unescape(body[1]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1200])
def test_a_page_fits_and_shows_every_figure(report_page: Path, width: int) -> None:
    """On a phone and on a screen: nothing is wider than the page, each figure is drawn, named and legible."""
    found = seen(report_page, width)
    assert found["width"] == width
    assert found["scrolls"] == width
    assert len(found["titles"]) == 6
    assert len(found["labels"]) == len(found["titles"])
    assert all(label.startswith(title) for label, title in zip(found["labels"], found["titles"], strict=True))
    assert set(found["roles"]) == {"img"}
    assert all(drawn >= 5 for drawn in found["drawn"])
    assert all(0.85 * min(width, 760) < one <= width for one in found["widths"])
    assert found["least_text"] >= 8
    assert found["headings"] == 1


@pytest.mark.slow
def test_a_page_is_dark_where_that_is_wanted(report_page: Path) -> None:
    """Paper follows the browser's preference."""
    dark = seen(report_page, 800, "--force-dark-mode", "--blink-settings=preferredColorScheme=0")["paper"]
    light = seen(report_page, 800, "--blink-settings=preferredColorScheme=1")["paper"]
    assert (light, dark) == ("rgb(254, 254, 254)", "rgb(20, 24, 29)")
