"""Progress bars in a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from ckh.text import progress as progress_module
from ckh.text.progress import progress

if TYPE_CHECKING:
    import pytest

_CODE = """
import time
from ckh.text.progress import progress
with progress("measuring", 100000) as advance:
    for _ in range(4):
        advance(10000, "grouped_conv_fwd_fp32_nhwgc_2d_compv6_cshuffle_intrawave_128x64x128_8x2x1_16x16x32_dsb")
        time.sleep(0.3)
"""


def test_bar_count_rate_and_time_left_fit_into_80_columns() -> None:
    """A long name of the current item is cut, and all fit on one line."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    done = subprocess.Popen([sys.executable, "-c", _CODE], stderr=slave, env=environment)
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 4096):
            shown += part
    except OSError:  # the other end was closed
        pass
    assert done.wait() == 0
    os.close(master)
    frames = re.split(r"\r|\n", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()))
    last = next(frame for frame in reversed(frames) if "40000/100000" in frame)
    assert len(last) <= 80
    assert re.search(r"measuring \S*━\S* +40000/100000 +[\d.]+/s +left +0:00:\d\d +grouped_conv_f\S*…", last), last


def test_finished_items_do_not_count_towards_the_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine of twenty steps are done before one takes 0.2 s: the rate is at most five a second."""
    monkeypatch.setattr(progress_module, "_FIRST_LINE_S", 0.05)
    monkeypatch.setattr(progress_module, "_INTERVAL_S", 0.05)
    shown = ""
    with progress("compiling", 20) as advance:
        advance(9, "")
        advance(0, "a kernel")
        time.sleep(0.2)
        advance(1, "")
        while " 10/20 " not in shown:
            time.sleep(0.05)
            shown += capsys.readouterr().err
    matched = re.search(r"compiling: 10/20 \(([\d.]+)/s, (\d+) s left\)", shown)
    assert matched is not None, shown
    assert float(matched[1]) <= 5.0
    assert int(matched[2]) >= 2
