"""Results in words: what people and models read where a client does not show the structured result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from putback.mcp_server import results
from putback.mcp_server.bounds import Page
from putback.paths import printable
from putback.records.document import AtPath


def failure(item: results.Failure) -> str:
    """The error, and on a line of its own what would help."""
    fault = item.error
    return f"{fault.code}: {fault.message}" + (f"\n{fault.hint}" if fault.hint else "")


def result(item: results.Result) -> str:
    """Any other result."""
    return "\n".join(_WORDS[type(item)](item))


def _created(item: results.Created) -> Iterator[str]:
    yield f"captured {item.entry.id[:12]}: {_text(item.entry.message)}"
    yield from _coverage(item.coverage)


def _listed(item: results.Listed) -> Iterator[str]:
    if not item.entries.total:
        yield "nothing was ever captured here; snapshot_create takes the first capture"
    yield from (_entry(entry) for entry in item.entries.items)
    yield from _rest(item.entries, "entries")


def _shown(item: results.Shown) -> Iterator[str]:
    yield "a capture without an entry of its own" if item.entry is None else _entry(item.entry)
    if item.coverage is not None:
        yield from _coverage(item.coverage)
    if item.changes is not None:
        yield from _changes(item.changes)


def _differs(item: results.Differs) -> Iterator[str]:
    sides = f"{_text(item.before)} -> {_text(item.after)}"
    if not item.changes.total:
        yield f"no difference: {sides}"
        return
    yield sides
    yield from _changes(item.changes)
    if item.patch is not None:
        yield item.patch.text
        if item.patch.next_offset is not None:
            end, total = item.patch.next_offset, item.patch.total_bytes
            yield f"… cut: {end} of {total} bytes of the patch so far; patch_offset={end} goes on"


def _planned(item: results.Planned) -> Iterator[str]:
    yield from (_effect(effect) for effect in item.effects.items)
    yield from _rest(item.effects, "paths")
    refused, left = item.counts.get("refuse", 0), item.counts.get("leave", 0)
    changing = f"{_count(item.would_change, 'path')} would change in {_text(item.root)}"
    yield f"{changing}, {refused} refused, {left} left alone"
    yield f"nothing was changed; the plan's digest: {item.digest}"


def _applied(item: results.Applied) -> Iterator[str]:
    yield from (_reasoned(f"{one.status} {_path(one)}", one.reason) for one in item.outcomes.items)
    yield from _rest(item.outcomes, "paths")
    bad = f", {item.not_applied} not" if item.not_applied else ""
    back = f"; `putback undo` takes this back ({item.id[:12]})" if item.id else ""
    yield f"{_count(item.applied, 'path')} put back{bad}{back}"


def _status(item: results.Status) -> Iterator[str]:
    if item.last is None:
        yield f"not protected: {_text(item.root)} was never captured; snapshot_create takes the first capture"
    else:
        yield f"protected: {_text(item.root)}, the newest of {item.entries} in its history:"
        yield _entry(item.last)
    yield f"store: {item.store.bytes} of {item.store.limit} bytes in {_text(item.store.path)}"
    yield from (f"damaged: {fault}" for fault in item.damaged)
    if item.replaced:
        yield "the directory is not the one that was captured: it was replaced at this path"
    if item.interrupted:
        yield f"unknown state: {_text(item.interrupted)}; a person has to resolve it with `putback recover`"
    for run in item.runs:
        yield f"run {run.id[:12]} {'is under way' if run.alive else 'was interrupted'}: {run.command}"
    if item.open_turns:
        yield f"open or unknown turns: {item.open_turns}; `putback turn list` shows them"


def _entry(item: results.Entry) -> str:
    amount = _count(item.files, "file") if item.kind == "snapshot" else f"{_count(item.changed, 'path')} changed"
    how = f"[{item.status}, exit {item.exit_code}] " if item.status else ""
    return f"{item.place or '-'} {item.id[:12]} {item.kind} {item.created_at} {amount}: {how}{_text(item.message)}"


def _coverage(item: results.Coverage) -> Iterator[str]:
    yield f"{_count(item.files, 'file')}, {item.bytes} bytes; left out by ignore rules: {item.ignored}"
    if item.not_covered.total:
        yield f"not covered: {_count(item.not_covered.total, 'path')}"
    for one in item.not_covered.items:
        yield _reasoned(f"  {one.reason} {_path(one)}", one.detail)
    yield from _rest(item.not_covered, "paths not covered")
    yield from (f"warning: {warning}" for warning in item.warnings)


def _changes(item: Page[results.Change]) -> Iterator[str]:
    for change in item.items:
        sides = " -> ".join(side for side in (change.before, change.after) if side)
        yield f"{change.status} {_path(change)} ({sides})"
    yield from _rest(item, "changes")


def _effect(item: results.Effect) -> str:
    sides = " -> ".join(side for side in (item.now, item.goal) if side)
    return _reasoned(f"{item.action} {_path(item)}", sides or item.reason)


def _rest(item: Page[Any], what: str) -> Iterable[str]:
    """What a page leaves out."""
    if item.next_offset is not None:
        yield f"… {item.offset + len(item.items)} of {item.total} {what} so far; offset={item.next_offset} goes on"


def _reasoned(line: str, reason: str) -> str:
    return f"{line} ({_text(reason)})" if reason else line


def _count(number: int, one: str) -> str:
    return f"{number} {one}{'' if number == 1 else 's'}"


def _path(item: AtPath) -> str:
    return printable(item.name)


def _text(text: str) -> str:
    return printable(text.encode("utf-8", "backslashreplace"))


_WORDS: dict[type[Any], Callable[[Any], Iterable[str]]] = {
    results.Created: _created,
    results.Listed: _listed,
    results.Shown: _shown,
    results.Differs: _differs,
    results.Planned: _planned,
    results.Applied: _applied,
    results.Status: _status,
}
