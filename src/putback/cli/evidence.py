"""`RUN|DIR`: the documents of a run of this workspace, or of one whose documents somebody handed over.

What has the form of an id is one: a command under supervision could make a directory called `@1`, and with it say
what `putback verify @1` shows.
"""

from __future__ import annotations

import re
from pathlib import Path

from putback.cli.call import Call

_ID = re.compile(r"@\d+|[0-9a-f]{7,64}")


def names_run(here: Call, asked: str) -> bool:
    """Whether `asked` is the id of a run, as against a directory."""
    return _ID.fullmatch(asked) is not None or not Path(here.directory, asked).is_dir()


def folder(here: Call, asked: str) -> Path:
    """Where the documents are. Raises MalformedId, UnknownId and AmbiguousId."""
    return here.workspace.runs.folder(asked) if names_run(here, asked) else Path(here.directory, asked)
