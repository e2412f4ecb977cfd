"""Putting our hooks into an agent's settings, and taking them out again, to the byte.

First everything is looked at and a draft is made, which writes nothing and refuses all that speaks against it;
then the draft is carried out.
"""

from __future__ import annotations

from putback.agents import own_files
from putback.agents.draft import NAME, Edit, Installed, Site
from putback.agents.places import Form, Place, Scope, place
from putback.agents.settings_edits import SettingsEdits
from putback.agents.settings_files import look, remove, tidy, write

_JSON = (Form.NESTED, Form.FLAT)


def install(agent: str, scope: Scope, site: Site) -> Installed:
    """Put our hooks for `agent` where it looks for them; again, and nothing changes.

    Raises UsageError and RefusedError before anything is written; Stale and StorageError.
    """
    return carry_out(draft(agent, scope, site))


def uninstall(agent: str, scope: Scope, site: Site) -> Installed:
    """Take out what `install` put in, and nothing else. Raises as `install` does."""
    return carry_out(draft_removal(agent, scope, site))


def draft(agent: str, scope: Scope, site: Site) -> Installed:
    """What `install` would do. Raises as it does, and writes nothing."""
    where = place(agent)
    site = site.within(where, scope)
    if where.form in _JSON:
        edits = SettingsEdits.at(agent, where, scope, site).put_in()
    else:
        paths, within = site.paths(where, scope)
        text = own_files.content(agent, where.form, site.command(agent))
        edits = tuple(own_files.put_in(agent, where.form, look(path, within), text) for path in paths)
    return Installed(agent, scope, edits, (*_notes(edits), *_sharing(where, scope, site, edits)))


def draft_removal(agent: str, scope: Scope, site: Site) -> Installed:
    """What `uninstall` would do. Raises as it does, and writes nothing."""
    where = place(agent)
    site = site.within(where, scope)
    kept: tuple[str, ...] = ()
    if where.form in _JSON:
        edits, kept = SettingsEdits.at(agent, where, scope, site).take_out()
    else:
        paths, within = site.paths(where, scope)
        edits = tuple(own_files.take_out(agent, look(path, within)) for path in paths)
    return Installed(agent, scope, edits, (*_notes(edits), *kept))


def carry_out(drafted: Installed) -> Installed:
    """Write what was drafted. Raises Stale and StorageError."""
    changed = [edit for edit in drafted.edits if edit.changes]
    for edit in changed:
        if edit.after is None:
            remove(edit.file)
        else:
            write(edit.file, edit.after, edit.mode)
    for edit in changed:
        if edit.after is None:
            tidy(edit.file.target.parent, edit.file.within)
    return drafted


def _sharing(where: Place, scope: Scope, site: Site, edits: tuple[Edit, ...]) -> tuple[str, ...]:
    """What to know of files that lie in the project."""
    changed = [edit.file for edit in edits if edit.changes and not edit.backup]
    if scope is Scope.USER or not changed:
        return ()
    if not where.shared:
        new = changed[0].data is None
        return (f"{changed[0].path} is yours alone: see that git ignores it",) if new else ()
    called = "they need putback, too" if site.program == (NAME,) else f"{site.program[0]} is your path, not theirs"
    return (f"others get this with the project if it is committed, and {called}; --user is for you alone",)


def _notes(edits: tuple[Edit, ...]) -> tuple[str, ...]:
    return tuple(
        f"{edit.file.path} is reached by a link: {edit.file.target} is what changes; the link stays"
        for edit in edits
        if edit.changes and edit.file.follows and not edit.backup
    )
