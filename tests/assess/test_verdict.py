"""Verdicts as JUnit XML and as Markdown."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from ckh.assess.verdict import Check, Verdict, VerdictTable

VERDICT = Verdict(
    "ckh validate compare",
    "old <-> new",
    (Check("mean", detail="0.9 -> 0.9"), Check("worst \x1b[31m", "a & b < c", "first\nsecond")),
    ("one line_",),
    (VerdictTable("", ("problem", "old"), [["conv_a|b", "1"]]),),
)


def test_junit_has_a_test_for_each_check() -> None:
    """Counts, names and failures are parsed by an XML parser; terminal control characters are escaped."""
    root = ET.fromstring(VERDICT.junit())  # noqa: S314 - our own text
    suite = root[0]
    assert (root.tag, suite.get("name")) == ("testsuites", "ckh validate compare")
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["2", "1", "0"]
    good, bad = suite.findall("testcase")
    assert (good.get("name"), good.find("failure")) == ("mean", None)
    assert bad.get("name") == "worst \\x1b[31m"
    failure = bad.find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("a & b < c", "first\nsecond")


def test_markdown_has_the_verdict_and_reasons() -> None:
    """Foreign text is escaped, and a table has its header rule."""
    assert VERDICT.markdown().decode().splitlines()[2:] == [
        "## FAIL: old \\<-\\> new",
        "",
        "- a & b \\< c",
        "",
        "one line\\_",
        "",
        "| problem | old |",
        "| --- | ---: |",
        "| conv_a\\|b | 1 |",
    ]


def test_no_failures_pass() -> None:
    """Without failures there is no list of failures."""
    text = Verdict("ckh validate selection", "golden.json", (Check("a"),)).markdown().decode()
    assert text.splitlines()[2:] == ["## PASS: golden.json"]
