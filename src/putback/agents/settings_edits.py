"""Drafts for agents whose hooks are in a JSON file of the user's: only our entries are put in and taken out.

The first time a file is changed, what it was is kept beside it, with BACKUP after its name, until our entries
are out of it again. Nothing is written here.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from putback.agents import settings_text
from putback.agents.commands import is_ours
from putback.agents.draft import PLAIN, Edit, Site
from putback.agents.places import Place, Scope
from putback.agents.settings_files import SettingsFile, look
from putback.errors import RefusedError

BACKUP = ".putback-backup"
_BOM = "\ufeff"


@dataclass(frozen=True)
class SettingsEdits:
    """The settings of one agent at one place, and the file as it was before us, if it is kept."""

    agent: str
    where: Place
    site: Site
    file: SettingsFile
    kept: SettingsFile

    @classmethod
    def at(cls, agent: str, where: Place, scope: Scope, site: Site) -> SettingsEdits:
        """Look at both files. Raises RefusedError and StorageError."""
        (path,), within = site.paths(where, scope)
        return cls(agent, where, site, look(path, within), look(path.with_name(path.name + BACKUP), within))

    @property
    def entries(self) -> dict[str, Any]:
        """What we put in, by event."""
        return self.where.entries(shlex.join(self.site.command(self.agent)))

    @property
    def beside(self) -> Mapping[str, Any]:
        return self.where.beside or {}

    def put_in(self) -> tuple[Edit, ...]:
        """Raises RefusedError where the file cannot be edited safely."""
        try:
            return self._put_in()
        except (settings_text.Unclear, UnicodeError) as error:
            snippet = {"hooks": {event: [entry] for event, entry in self.entries.items()}}
            raise RefusedError(
                f"cannot edit {str(self.file.path)!r} safely: {_why(error)}; nothing was written",
                hint=f"put this into it yourself: {json.dumps({**self.beside, **snippet})}",
            ) from error

    def take_out(self) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
        """The edits, and notes on them. Raises RefusedError where the file cannot be edited safely."""
        try:
            return self._take_out()
        except (settings_text.Unclear, UnicodeError) as error:
            raise RefusedError(
                f"cannot edit {str(self.file.path)!r} safely: {_why(error)}; nothing was written",
                hint=f"remove the hooks that run `putback hook {self.agent}` yourself",
            ) from error

    def found(self) -> dict[str, Any]:
        """Our entries in the file, by event. Raises Unclear and UnicodeError."""
        return {} if self.file.data is None else settings_text.entries_of(self._text(), self._ours)

    def _put_in(self) -> tuple[Edit, ...]:
        if self.file.data is None:
            return (self._edit(settings_text.created(self.entries, self.beside)),)
        text = self._text()
        if self.found() == self.entries:
            return (Edit(self.file, self.file.data),)
        new = not settings_text.names_any(text, self._ours)
        before = text if new else settings_text.taken_out(text, self._ours, self._before(), self.beside)
        if before is None:
            return (self._edit(settings_text.created(self.entries, self.beside)),)
        after = self._edit(settings_text.put_in(before, self.entries, self.beside))
        keep = new or self.kept.data is None
        # There may be secrets in it.
        mode = PLAIN if self.file.mode is None else self.file.mode
        return (Edit(self.kept, self._bytes(before) if keep else self.kept.data, mode, backup=True), after)

    def _take_out(self) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
        if self.file.data is None or not settings_text.names_any(text := self._text(), self._ours):
            return (), ()
        after = settings_text.taken_out(text, self._ours, self._before(), self.beside)
        edit = Edit(self.file, None) if after is None else self._edit(after)
        if self.kept.data is None:
            return (edit,), ()
        if self.kept.data == edit.after:
            return (edit, Edit(self.kept, None, backup=True)), ()
        return (edit,), (f"{self.kept.path} stays: the file has been changed otherwise since",)

    def _ours(self, command: str) -> bool:
        return is_ours(self.agent, command)

    def _text(self) -> str:
        assert self.file.data is not None
        return self.file.data.decode().removeprefix(_BOM)

    def _before(self) -> str | None:
        return None if self.kept.data is None else self.kept.data.decode("utf-8", "replace").removeprefix(_BOM)

    def _edit(self, text: str) -> Edit:
        return Edit(self.file, self._bytes(text))

    def _bytes(self, text: str) -> bytes:
        marked = self.file.data is not None and self.file.data.startswith(_BOM.encode())
        return ((_BOM if marked else "") + text).encode()


def _why(error: ValueError) -> str:
    return "it is no UTF-8" if isinstance(error, UnicodeError) else str(error)
