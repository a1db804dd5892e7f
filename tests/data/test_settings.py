"""The settings of bench stand once: option, what was given, and the record of a run follow."""

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
    """Every field of `Settings` is typed as an option of its name, with a help, and is a field of a run's record."""
    options = {name: one.default for name, one in inspect.signature(bench).parameters.items()}
    for name in SETTINGS:
        assert options[name].param_decls[0].partition("/")[0] == as_option(name)
        assert options[name].help
    assert set(SETTINGS) < {one.name for one in fields(RunRecord)}


def test_what_was_not_given_is_no_value() -> None:
    """None is not given, whereas 0 and False are."""
    given = Given(seed=0, cold=False, problems=None)
    assert given.values == {"seed": 0, "cold": False}
    assert given["problems"] is None
    with pytest.raises(TypeError, match="no settings: colour"):
        Given(colour="red")


def test_a_record_gives_its_settings_back() -> None:
    """What a run is recorded with is what a resumed run takes."""
    settings = Settings(
        op="o", variant="v", problems="p", kernels="k", dtype="fp16", seed=7, samples=3, split_k=(1, 2), max_scratch=0
    )
    values = {name: getattr(settings, name) for name in SETTINGS}
    record = host_run({}, **values)
    assert record.settings == settings
