"""docs/schemas is what the records say, and describes what a run writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import schemas
from putback.records import document
from putback.records.ledger import TYPES
from putback.runs.portable import plan_restore
from support.runs import Run


@pytest.mark.parametrize("name", sorted(schemas.files()))
def test_the_schemas_are_up_to_date(name: str) -> None:
    current = (schemas.FOLDER / name).read_bytes()
    assert current == schemas.files()[name], "run: python tests/schemas.py"


def test_no_schema_is_left_over() -> None:
    assert sorted(path.name for path in schemas.FOLDER.iterdir()) == sorted(schemas.files())


def test_every_type_of_event_is_in_the_schema() -> None:
    schema = schemas.ledger_event()
    named = [each["properties"]["type"].get("const") for each in schema["oneOf"]]
    assert named == [*TYPES.values(), None]


def fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether the value is as the schema says; as much of JSON Schema as ours use."""
    known = {"title", "description", "default", "$schema", "$defs"}
    known |= {"$ref", "anyOf", "oneOf", "type", "const", "enum", "pattern", "minimum", "maximum"}
    known |= {"properties", "required", "additionalProperties", "items", "discriminator"}
    assert schema.keys() <= known, schema.keys() - known
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema and not any(fits(value, each, root) for each in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(fits(value, each, root) for each in schema["oneOf"]) != 1:
        return False
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "null": type(None)}
    if "type" in schema and not isinstance(value, kinds[schema["type"]]):
        return False
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        return False
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return False
    if isinstance(value, int):
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    if isinstance(value, list):
        return all(fits(each, schema.get("items", {}), root) for each in value)
    if isinstance(value, dict) and "properties" in schema:
        inner = schema["properties"]
        if schema.get("additionalProperties") is False and not value.keys() <= inner.keys():
            return False
        required = set(schema.get("required", ()))
        return required <= value.keys() and all(
            fits(value[key], inner[key], root) for key in inner.keys() & value.keys()
        )
    return True


def schemas_require(schema: dict[str, Any], value: dict[str, Any]) -> list[str]:
    """The fields that the document itself has to have."""
    return sorted(value) if "oneOf" in schema else ["format"]


def test_what_a_run_writes_fits(tmp_path: Path) -> None:
    files = Run().build(tmp_path)
    found = files.load()
    assert files.manifest and files.receipt and files.ledger and found.manifest and found.ledger
    plan = document.encode(plan_restore(found.manifest, found.ledger.changes))
    written = {"manifest.json": [files.manifest], "receipt.json": [files.receipt], "plan.json": [plan]}
    written["ledger-event.json"] = files.ledger.splitlines()
    for name, texts in written.items():
        schema = msgspec.json.decode(schemas.files()[name])
        for text in texts:
            value = msgspec.json.decode(text)
            assert fits(value, schema, schema), (name, text)
            assert name == "plan.json" or not fits(value | {"other": 1}, schema, schema), name
            for key in schemas_require(schema, value):
                assert not fits({each: value[each] for each in value if each != key}, schema, schema), (name, key)
