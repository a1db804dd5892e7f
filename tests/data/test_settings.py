"""Settings of bench, declared once: options, given values, and the run's record."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from ckh.commands.bench import bench
from ckh.data.journal_records import RunRecord
from ckh.data.settings import SETTINGS, Given, Settings
from ckh.requested import as_option
from tests.runs import host_run


def test_each_setting_is_an_option_and_recorded() -> None:
    """Every field of `Settings` is an option of its name, with help, and a field of a run's record."""
    options = {name: parameter.default for name, parameter in inspect.signature(bench).parameters.items()}
    for name in {*SETTINGS} - {"active", "rotating"}:  # of earlier versions; follows from --cold
        assert options[name].param_decls[0].partition("/")[0] == as_option(name)
        assert options[name].help
    assert set(SETTINGS) < {field.name for field in fields(RunRecord)}


def test_none_means_not_given() -> None:
    """None means not given; 0 and False are values."""
    given = Given(seed=0, cold=False, problems=None)
    assert given.values == {"seed": 0, "cold": False}
    assert given["problems"] is None
    with pytest.raises(TypeError, match="no settings: colour"):
        Given(colour="red")


def test_a_record_gives_its_settings_back() -> None:
    """A resumed run gets the recorded settings."""
    settings = Settings(
        op="o", variant="v", problems="p", kernels="k", dtype="fp16", seed=7, samples=3, split_k=(1, 2), max_scratch=0
    )
    values = {name: getattr(settings, name) for name in SETTINGS}
    record = host_run({}, **values)
    assert record.settings == settings
