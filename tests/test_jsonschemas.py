"""Documents of --json: each names its schema, the schemas are described, and no field of a version goes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

from ckh.cli import run
from ckh.errors import ExitCode
from ckh.tabletext import JSON_VERSION, json_text
from ckh.version import __version__
from tests.jsonschemas import FIELDS, FOLDER, fields, read_schema, require_described

NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
CODE = FOLDER.parent


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_schemas(name: str) -> None:
    """Each is valid, has its file's name, a title, and the three fields that every document has."""
    schema = read_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"] == {"const": f"ckh.{name}"}
    assert {"schema", "schema_version", "ckh_version"} <= set(schema["required"])
    assert schema["title"]
    assert re.fullmatch(schema["properties"]["schema_version"]["pattern"], JSON_VERSION)


def test_every_schema_is_written_by_a_command_and_no_other() -> None:
    """The names in the code are those of the files."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in CODE.rglob("*.py"))
    written = set(re.findall(r'(?:print_json|json_text)\(\s*"(\w+)"', code))
    constants = re.findall(r'_?(?:SCHEMA|schema) = "(\w+)"(?: if \w+ else "(\w+)")?', code)
    assert written | {name for pair in constants for name in pair if name} == set(NAMES)


def test_no_field_of_this_version_goes() -> None:
    """What was ever listed is still required, with the same type; CKH_UPDATE_GOLDEN=1 adds new fields."""
    now = sorted(line for name in NAMES for line in fields(name))
    kept = FIELDS.read_text(encoding="utf-8").splitlines() if FIELDS.exists() else []
    assert set(kept) <= set(now)
    if os.environ.get("CKH_UPDATE_GOLDEN"):
        FIELDS.write_text("\n".join(now) + "\n", encoding="utf-8")


def test_an_answer_is_described_alike_alone_and_among_many() -> None:
    """Each field of an answer in `ckh.predict_many` is that of `ckh.predict`; only the explanation is of one alone."""
    alone, many = read_schema("predict"), read_schema("predict_many")["properties"]["results"]["items"]
    own = {"schema", "schema_version", "ckh_version", "explanation"}
    assert set(many["required"]) == set(alone["required"]) - own
    assert many["properties"] == {name: field for name, field in alone["properties"].items() if name not in own}


def test_a_document_says_what_it_is() -> None:
    """Schema, its version and ckh's version come first."""
    document = json.loads(json_text("bench_registry", {"registry": "a.json", "arch": "host", "kernels": 3}))
    assert list(document.items())[:3] == [
        ("schema", "ckh.bench_registry"),
        ("schema_version", JSON_VERSION),
        ("ckh_version", __version__),
    ]


@pytest.mark.parametrize("change", [{"more": 1}, {"kernels": "3"}, {"kernels": None}])
def test_what_is_not_described_is_found(change: dict[str, object]) -> None:
    """A field that the schema lacks, one of another type, and one that is null where it must not be."""
    with pytest.raises(AssertionError, match="jsonschemas/bench_registry"):
        json_text("bench_registry", {"registry": "a.json", "arch": "host", "kernels": 3, **change})


def test_quick_answers_say_it_too() -> None:
    """What C answers from a prepared file in a process of its own has the same schema as the full command."""
    found = {}
    for quick in ("1", "0"):
        result = subprocess.run(
            [sys.executable, "-m", "ckh", "predict", "--n", "16", "--c", "256", "--json"],
            env={**os.environ, "CKH_QUICK": quick},
            capture_output=True,
            check=True,
        )
        found[quick] = json.loads(result.stdout)
        require_described("predict", found[quick])
    assert list(found["1"]) == list(found["0"])
    assert found["1"]["schema"] == "ckh.predict"


def test_doctor_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that writes what it gathers."""
    assert run(["doctor", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["schema"] == "ckh.doctor"
