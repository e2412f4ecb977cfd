"""A store with bindings in it, for tests of who owns what."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from putback.git import command
from putback.git.user_repo import UserRepository
from putback.progress import SILENT
from putback.records.turn import Binding, Claim
from putback.store.layout import Store
from putback.turns import binding as bindings
from putback.turns import ownership
from putback.turns.binding import BindingFolder
from putback.turns.claims import Claims
from support.hermetic import make_repository, settings


@dataclass
class Registry:
    """Calls with the words that a test does not care about filled in."""

    base: Path
    wait: float = 0.0
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(self.base / "store")

    @property
    def claims(self) -> Claims:
        return Claims(self.store)

    def bind(self, root: Path, binding_id: str | None = None, **chosen: Any) -> ownership.Bound:
        words: dict[str, Any] = {"owner": "me", "actor": "a person", "reason": "a test", **chosen}
        chosen_settings = settings(lock_wait_seconds=self.wait)
        return ownership.bind(
            self.store, chosen_settings, SILENT, root=os.fsencode(root), binding_id=binding_id, **words
        )

    def bound(self, root: Path, binding_id: str | None = None, **chosen: Any) -> Binding:
        return self.bind(root, binding_id, **chosen).binding

    def release(self, binding_id: str, **chosen: Any) -> ownership.Released:
        words: dict[str, Any] = {"actor": "a person", "reason": "a test", **chosen}
        chosen_settings = settings(lock_wait_seconds=self.wait)
        return ownership.release(self.store, chosen_settings, SILENT, binding_id=binding_id, **words)

    def attest(self, binding: Binding) -> UserRepository:
        with self.gate(shared=True):
            return bindings.attest(self.claims, binding, command.find())

    def gate(self, *, shared: bool, claims: Claims | None = None) -> Any:
        return (claims or self.claims).gate("test", shared=shared, wait_seconds=self.wait, progress=SILENT)

    def folder(self, binding: Binding) -> BindingFolder:
        return bindings.folder_of(self.store, binding)

    def file(self, binding_id: str) -> Path:
        return self.store.claims / f"{binding_id}.json"

    def states(self) -> dict[str, str]:
        return {claim.binding.id: str(claim.state) for claim in self.claims.all()}

    def claim(self, binding_id: str) -> Claim:
        return self.claims.find(binding_id)


@cache
def _template() -> Path:
    place = Path(tempfile.mkdtemp(prefix="putback-template-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return make_repository(place)


def repository_at(root: Path) -> Path:
    """A repository with one commit of `committed`; copied, which is quicker than three processes."""
    shutil.copytree(_template(), root, dirs_exist_ok=True)
    return root
