"""Answers for many problems of a kind equal those for each."""

from __future__ import annotations

from random import Random

import pytest

import ckh
from ckh.learn.answers.answer_document import answer_document
from ckh.learn.answers.answering import Chooser
from ckh.ops import as_problem
from ckh.quick import many
from ckh.quick.many import prepared_answers


@pytest.mark.usefixtures("alone")
def test_answers_equal_those_for_each_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padded ones too; kinds with few problems are left to the ranking, as are all without the C part."""
    monkeypatch.delenv("CKH_MODELS")
    monkeypatch.setattr(many, "_LEAST", 8)
    random = Random(1)
    texts = [
        f"conv_forward_bf16_nhwgc_2d_n{random.randint(1, 64)}_c{8 * random.randint(1, 40)}_k{random.randint(1, 200)}"
        f"_g1_i{random.randint(3, 90)}x{random.randint(3, 90)}_f3x3_s1x1_p1x1_d1x1"
        for _ in range(12)
    ]
    chooser = Chooser(None, "gfx950", None, None)
    problems = [as_problem(text) for text in [*texts, texts[0].replace("bf16", "fp16")]]
    answers = prepared_answers(chooser, problems, 3, "ckh predict", stands_in=True, uses_probes=False)
    assert [problem.canonical() for problem in answers] == texts
    for problem, answer in answers.items():
        alone = ckh.answer(problem, 3, arch="gfx950")
        assert (alone.next_command, answer.next_command) == ("", "ckh predict --arch gfx950 --probe auto")
        assert answer_document(answer.replaced(next_command="")) == answer_document(alone)
    assert any(answer.padded for answer in answers.values())
    monkeypatch.setenv("CKH_RANK_BACKEND", "numpy")
    assert not prepared_answers(chooser, problems, 3, "ckh predict", stands_in=True, uses_probes=False)
