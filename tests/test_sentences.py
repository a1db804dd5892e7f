"""Tests assert codes, fields and values, not sentences, so that a message can be reworded."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent
MAX_WORDS = 3
OUTPUTS = {"test_docs.py"}  # compares complete outputs with README and docs
_WORD = re.compile(r"""[("']*[A-Za-z]?[a-z]+(?:'s|s')?[,.;:)"'?!]*""")
_COMMAND = re.compile(r"ckh [a-z]+( .*|$)")


def words_of(text: str) -> int:
    """Number of English words of a text, without quoted commands."""
    return sum(_WORD.fullmatch(word) is not None for word in _COMMAND.sub("", text).split())


def texts_of(node: ast.AST) -> Iterator[str]:
    """Texts below a node, f-strings in one piece, without lookup keys."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Subscript):
        yield from texts_of(node.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts_of(child)


def asserted(tree: ast.AST) -> Iterator[str]:
    """Texts that assertions compare with, and patterns of `pytest.raises`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield from texts_of(node.test)
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "match":
                    yield from texts_of(keyword.value)


def test_no_assertion_compares_a_sentence() -> None:
    """No text in an assertion has more English words than a value may have."""
    sentences = {
        (path.name, text)
        for path in TESTS.rglob("*.py")
        if path.name not in OUTPUTS
        for text in asserted(ast.parse(path.read_text(encoding="utf-8")))
        if words_of(text) > MAX_WORDS
    }
    assert not sentences


def test_sentences_are_recognized() -> None:
    """Words count, but not names, numbers, options and quoted commands."""
    sentence = ast.parse('assert "error: there is no model x" in stderr')
    assert [words_of(text) for text in asserted(sentence)] == [6]
    values = ast.parse('assert rows["mean of all of these"] == "tile_m = 4, gfx942, --out ckh bench --out run of this"')
    assert [words_of(text) for text in asserted(values)] == [0]
