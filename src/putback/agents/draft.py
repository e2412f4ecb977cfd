"""What installing changes, before it is changed: files as they were looked at, and what they will be."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from putback.agents.places import Form, Place, Scope
from putback.agents.settings_files import SettingsFile

NAME = "putback"
PLAIN, EXECUTABLE = 0o666, 0o777


@dataclass(frozen=True)
class Site:
    """Where to install, and what: `root` is the project's, `program` how putback is started."""

    root: Path
    home: Path
    program: tuple[str, ...]
    environment: Mapping[str, str]

    def command(self, agent: str) -> list[str]:
        """The command line of our hook."""
        return [*self.program, "hook", agent]

    def within(self, where: Place, scope: Scope) -> Site:
        """The site as settings at that place must have it.

        In a file that others get, putback is called by its name, where that is found: the path to it is nobody
        else's.
        """
        if scope is Scope.USER or not where.shared or len(self.program) != 1:
            return self
        found = shutil.which(NAME, path=self.environment.get("PATH", ""))
        same = found is not None and os.path.realpath(found) == os.path.realpath(self.program[0])
        return replace(self, program=(NAME,)) if same else self

    def paths(self, where: Place, scope: Scope) -> tuple[list[Path], Path]:
        """The files of an agent's hooks, and the directory that no link in their paths may lead out of."""
        path = where.path(scope, self.root, self.home, self.environment)
        within = (
            self.root if scope is Scope.PROJECT else self.home if path.is_relative_to(self.home) else path.parent
        )
        return [path / hook.event for hook in where.hooks] if where.form is Form.SCRIPTS else [path], within


@dataclass(frozen=True)
class Edit:
    """One file as it was looked at, and what it will be: None for gone. `backup`: it is kept for the user only."""

    file: SettingsFile
    after: bytes | None
    mode: int = PLAIN
    backup: bool = False

    @property
    def changes(self) -> bool:
        return self.after != self.file.data

    def diff(self) -> str:
        """What changes, as a unified diff."""
        sides = (self.file.data, self.after)
        before, after = ((data or b"").decode("utf-8", "replace").splitlines(True) for data in sides)
        old, new = (os.devnull if data is None else str(self.file.path) for data in sides)
        lines = difflib.unified_diff(before, after, old, new)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Installed:
    """What installing, or uninstalling, changes. `notes` are what the user should know of it."""

    agent: str
    scope: Scope
    edits: tuple[Edit, ...]
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> tuple[Path, ...]:
        """The files that are written or removed, backups aside."""
        return tuple(edit.file.path for edit in self.edits if edit.changes and not edit.backup)
