"""Which agents are told to call putback for a tree. Quick to find out, and no proof that it works: `doctor` is."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from putback.agents import own_files
from putback.agents.draft import Site
from putback.agents.places import Form, Scope, place
from putback.agents.registry import NAMES
from putback.agents.settings_edits import SettingsEdits
from putback.agents.settings_files import look
from putback.agents.settings_text import Unclear
from putback.errors import PutbackError


class Protector(NamedTuple):
    """An agent whose settings have our hooks, and whose settings these are."""

    agent: str
    scope: Scope


def protectors(site: Site) -> list[Protector]:
    """The agents that have our hooks at `site`; settings that cannot be read have none."""
    found: list[Protector] = []
    for agent in NAMES:
        for scope in Scope:
            with suppress(PutbackError, Unclear, UnicodeError, OSError):
                if _has_hooks(agent, scope, site):
                    found.append(Protector(agent, scope))
    return found


def _has_hooks(agent: str, scope: Scope, site: Site) -> bool:
    where = place(agent)
    if not os.path.lexists(where.path(scope, site.root, site.home, site.environment)):
        return False
    if where.form not in (Form.SCRIPTS, Form.PLUGIN):
        return bool(SettingsEdits.at(agent, where, scope, site).found())
    paths, within = site.paths(where, scope)
    texts = [(look(path, within).data or b"").decode() for path in paths]
    return all(own_files.is_unchanged(agent, text) for text in texts)
