"""An answer holds every kernel of the pool once: ranked, or refused for a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.errors import ExitCode, NoKernelError, UsageError
from ckh.features.grouped_conv import CORE_NAMES
from ckh.kernels.pool import conv_pool, refused_pool
from ckh.learn.answer import answer
from ckh.learn.artifact import Model, load_model
from ckh.problems import Direction
from tests.learn.conftest import AMD_PROBLEMS, HOST, amd_model, problems

if TYPE_CHECKING:
    from pathlib import Path

ALL = 10 * 30  # tiles x variants


def test_all_candidates_are_ranked_once(model_dir: Path) -> None:
    """On the host nothing is refused: the whole pool, best first."""
    problem = problems()[0]
    found = answer(problem, load_model(model_dir))
    ranked = [one.kernel for one in found.ranked]
    assert len(ranked) == len(set(ranked)) == ALL
    assert set(ranked) == set(conv_pool(Direction.FORWARD, HOST))
    assert [one.score for one in found.ranked] == sorted((one.score for one in found.ranked), reverse=True)
    assert (found.problem, found.refused) == (problem, {})


def test_ranked_and_refused_are_the_whole_pool(tmp_path: Path) -> None:
    """On gfx942 each kernel is a candidate or counted under one reason, the most frequent first."""
    model = gfx942(tmp_path)
    found = answer(AMD_PROBLEMS[0], model)
    arch = load_arch("gfx942")
    assert {one.kernel for one in found.ranked} == set(conv_pool(Direction.FORWARD, arch, 2, "bf16"))
    refused = refused_pool(Direction.FORWARD, arch, 2, "bf16")
    assert found.refused == Counter(kernel.reasons[0] for kernel in refused)
    assert len(found.ranked) + sum(found.refused.values()) == ALL
    assert list(found.refused.values()) == sorted(found.refused.values(), reverse=True)
    assert len(found.refused) > 2


def test_a_problem_without_a_kernel_names_the_most_frequent_reason(tmp_path: Path) -> None:
    """C=4 of bf16 is too narrow for every kernel's vectors: 240 candidates break that rule, 60 others before it."""
    with pytest.raises(NoKernelError, match=f": 240 of {ALL} because .*vector"):
        answer(replace(AMD_PROBLEMS[0], c=4), gfx942(tmp_path))


def gfx942(folder: Path) -> Model:
    """A model of AMD's for an architecture that refuses some kernels."""
    amd_model(folder / "forward", CORE_NAMES, arch="gfx942", hardware=None)
    return load_model(folder / "forward")


def test_no_kernel_names_the_reason(model_dir: Path) -> None:
    """The host has no kernels of fp16: an error of its own with the count and the rule."""
    model = load_model(model_dir)
    problem = replace(problems()[0], dtype="fp16")
    with pytest.raises(NoKernelError, match=f"no kernel of host applies to .*: {ALL} of {ALL} because ") as error:
        answer(problem, Model(model.path, replace(model.spec, dtype="fp16")))
    assert error.value.exit_code == ExitCode.NO_KERNEL
    assert "fp16" in error.value.message.split("because")[1]


def test_a_model_answers_only_what_it_was_trained_for(model_dir: Path) -> None:
    """Another direction is refused before anything is ranked."""
    with pytest.raises(UsageError, match="is for grouped_conv forward fp32 on host, not grouped_conv bwd_data fp32"):
        answer(problems(Direction.BWD_DATA)[0], load_model(model_dir))
