"""JSON Schemas of the arguments and the results, from their types."""

from __future__ import annotations

from typing import Any

import msgspec

from putback.mcp_server.requests import Request
from putback.mcp_server.results import Failure, Result

_PLACE = "#/$defs/{name}"


def of_arguments(kind: type[Request]) -> dict[str, Any]:
    """The input schema: an object with nothing in it but what is named."""
    _, parts = msgspec.json.schema_components([kind], ref_template=_PLACE)
    schema = dict(parts.pop(kind.__name__))
    return schema | ({"$defs": parts} if parts else {})


def of_result(kind: type[Result]) -> dict[str, Any]:
    """The output schema: the result, or a failure. Clients check structured content of failures, too."""
    either, parts = msgspec.json.schema_components([kind, Failure], ref_template=_PLACE)
    return {"type": "object", "anyOf": list(either), "$defs": parts}
