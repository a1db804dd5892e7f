"""Documents of --json: each names its schema, the schemas have descriptions, and fields of a version are kept."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import pytest
from jsonschema import Draft202012Validator

from ckh.cli import run
from ckh.commands.bench.output import RegistryDocument
from ckh.documents import JSON_VERSION, Document, json_text, plain
from ckh.errors import ExitCode
from ckh.version import __version__
from tests.jsonschemas import FIELDS, FOLDER, documents, fields, read_schema, require_described, schema_text

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_schemas(name: str) -> None:
    """Each is valid, has its file's name, a title, and the three fields that every document has."""
    schema = read_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"] == {"const": f"ckh.{name}"}
    assert {"schema", "schema_version", "ckh_version"} <= set(schema["required"])
    assert schema["title"]
    assert re.fullmatch(schema["properties"]["schema_version"]["pattern"], JSON_VERSION)


@pytest.mark.slow
def test_schemas_are_generated_from_documents() -> None:
    """Each file is generated from a document's dataclass, and there are no others; CKH_UPDATE_GOLDEN=1 writes them."""
    made = {name: schema_text(document) for name, document in documents().items()}
    if os.environ.get("CKH_UPDATE_GOLDEN"):
        for name, text in made.items():
            (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
    assert {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")} == made


def test_no_field_of_this_version_is_removed() -> None:
    """Every listed field is still required, with the same type; CKH_UPDATE_GOLDEN=1 adds new fields."""
    now = sorted(line for name in NAMES for line in fields(name))
    kept = FIELDS.read_text(encoding="utf-8").splitlines() if FIELDS.exists() else []
    assert set(kept) <= set(now)
    if os.environ.get("CKH_UPDATE_GOLDEN"):
        FIELDS.write_text("\n".join(now) + "\n", encoding="utf-8")


def test_single_and_batch_answers_share_a_schema() -> None:
    """Each field of an answer in `ckh.predict_many` is that of `ckh.predict`."""
    alone, many = read_schema("predict"), read_schema("predict_many")["$defs"]["PredictDocument"]
    own = {"schema", "schema_version", "ckh_version", "left_out"}
    assert set(many["required"]) == set(alone["required"]) - own
    assert many["properties"] == {name: field for name, field in alone["properties"].items() if name not in own}


def test_a_document_names_its_kind() -> None:
    """Schema, its version and ckh's version come first."""
    document = json.loads(json_text(RegistryDocument("a.json", "host", 3)))
    assert list(document.items())[:3] == [
        ("schema", "ckh.bench_registry"),
        ("schema_version", JSON_VERSION),
        ("ckh_version", __version__),
    ]


class _Longer(RegistryDocument):
    """A document with a field that its schema lacks."""

    more: int = 1


@pytest.mark.parametrize(
    "document",
    [_Longer("a.json", "host", 3), *(RegistryDocument("a.json", "host", item) for item in ("3", None))],  # type: ignore[arg-type] # on purpose
)
def test_undescribed_fields_are_detected(document: Document) -> None:
    """A field that the schema lacks, one of another type, and one that is null but must not be."""
    with pytest.raises(AssertionError, match="jsonschemas/bench_registry"):
        json_text(document)


@dataclass(frozen=True, slots=True)
class _Part:
    json_properties: ClassVar = ("double",)
    json_inline: ClassVar = "more"

    value: int
    more: Mapping[str, int]

    @property
    def double(self) -> int:
        return 2 * self.value


class _Whole(Document):
    parts: tuple[_Part, ...]
    from_: str
    null: int | None
    absent: int | None = None


def test_documents_serialize_to_json() -> None:
    """Properties and inline mappings are fields, sequences are lists, and an absent field is left out."""
    whole = _Whole((_Part(3, {"a": 1}),), "here", None)
    assert plain(whole) == {"parts": [{"a": 1, "value": 3, "double": 6}], "from": "here", "null": None}
    assert plain(replace(whole, absent=5))["absent"] == 5


@pytest.mark.slow
def test_quick_answers_name_their_kind_too() -> None:
    """Answers given by C from a prepared file in a separate process have the same schema as the full command's."""
    outcome = {}
    for quick in ("1", "0"):
        result = subprocess.run(
            [sys.executable, "-m", "ckh", "predict", "--n", "16", "--c", "256", "--json"],
            env={**os.environ, "CKH_QUICK": quick},
            capture_output=True,
            check=True,
        )
        outcome[quick] = json.loads(result.stdout)
        require_described("predict", outcome[quick])
    assert list(outcome["1"]) == list(outcome["0"])
    assert outcome["1"]["schema"] == "ckh.predict"


def test_doctor_names_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that prints collected facts."""
    assert run(["doctor", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["schema"] == "ckh.doctor"
