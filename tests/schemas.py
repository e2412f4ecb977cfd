"""Write docs/schemas: the JSON Schemas of the documents of runs and turns, made from the records.

    python tests/schemas.py

`tests/unit/test_schemas.py` fails where a file is out of date.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from putback.records.ledger import TYPES
from putback.records.manifest import Manifest
from putback.records.plan import Plan
from putback.records.receipt import Receipt
from putback.records.turn import TurnCapture, TurnRollbackPlan

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
HASH = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"}


def ledger_event() -> dict[str, Any]:
    """One line of a ledger: a type decides what its data is."""
    references, definitions = msgspec.json.schema_components(TYPES, ref_template="#/$defs/{name}")
    ours = [_event({"const": name}, data) for name, data in zip(TYPES.values(), references, strict=True)]
    foreign = _event({"type": "string", "pattern": r"^x-(?!putback\.)[a-z0-9._-]+$"}, {})
    foreign["description"] = "An event of another program: chained, not understood; strings and integers only."
    return {"$schema": DRAFT, "title": "ledger event", "oneOf": [*ours, foreign], "$defs": definitions}


def _event(kind: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    properties = {
        "data": data,
        "hash": HASH,
        "prev": HASH,
        "seq": {"type": "integer", "minimum": 0},
        "ts": TIME,
        "type": kind,
    }
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def files() -> dict[str, bytes]:
    """File name to content."""
    schemas: dict[str, dict[str, Any]] = {"ledger-event": ledger_event()}
    records = {"manifest": Manifest, "receipt": Receipt, "plan": Plan, "turn": TurnCapture}
    for name, kind in {**records, "turn-plan": TurnRollbackPlan}.items():
        schemas[name] = {"$schema": DRAFT, **msgspec.json.schema(kind)}
    return {
        f"{name}.json": msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"
        for name, schema in schemas.items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, data in files().items():
        (FOLDER / name).write_bytes(data)
