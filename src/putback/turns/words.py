"""What people say for the record: refused before anything is done where no record takes it.

A record that was written all the same could never be read again, and the evidence around it would be lost with it.
"""

from __future__ import annotations

import msgspec

from putback.errors import UsageError
from putback.records.turn import TurnIdentity

MOST_NAME = 200
MOST_REASON = 1900


def check(*, reason: str, **names: str) -> None:
    """Raise UsageError for a reason or a name that is too long, or no text. That they are there is not asked."""
    for what, text, most in (("reason", reason, MOST_REASON), *((what, names[what], MOST_NAME) for what in names)):
        if len(text) > most:
            raise UsageError(f"{what} has {len(text)} characters; at most {most}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{what} is no text: it holds bytes that are not UTF-8") from error


def check_identity(turn: TurnIdentity) -> None:
    """Raise UsageError for the name or the generation of a turn that no record takes."""
    check(reason="", name=turn.turn_id)
    try:
        msgspec.convert(msgspec.to_builtins(turn), TurnIdentity)
    except msgspec.ValidationError as error:
        raise UsageError(f"not a turn's name and generation: {error}") from error
