"""Documents of a real run, edited by somebody who knows the formats: sealed again, they agree with one another.

This is the strongest forger that has no access to the store. After `seal` every digest, hash, count and tree id is
as the edited documents require, so that verification without the store finds nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from putback import canonical
from putback.git.objectid import object_id
from putback.records.change import Kind, State
from putback.records.document import AtPath
from putback.runs.facts import tree_id

Fields = dict[str, Any]


def at(path: bytes | str) -> Fields:
    """The fields that name a path."""
    return msgspec.to_builtins(AtPath.at(os.fsencode(path)))


def file(content: bytes, mode: int = 0o644) -> Fields:
    return {
        "kind": "file",
        "mode": mode,
        "size": len(content),
        "digest": object_id("blob", content).hex(),
    }


def link(target: bytes) -> Fields:
    return file(target, 0o777) | {"kind": "symlink"}


def directory(mode: int = 0o755) -> Fields:
    return {"kind": "directory", "mode": mode}


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


class Doctor:
    """`manifest` and `receipt` are plain JSON objects, `events` are pairs of type and data."""

    def __init__(self, folder: Path) -> None:
        self.manifest: Fields = msgspec.json.decode((folder / "manifest.json").read_bytes())
        self.receipt: Fields = msgspec.json.decode((folder / "receipt.json").read_bytes())
        lines = (folder / "ledger.jsonl").read_bytes().splitlines()
        self.events: list[tuple[str, Fields]] = []
        for line in map(msgspec.json.decode, lines):
            self.events.append((line["type"], line["data"]))

    def event(self, kind: str, number: int = 0) -> Fields:
        return [data for name, data in self.events if name == kind][number]

    @property
    def started(self) -> Fields:
        return self.event("run.start")

    @property
    def before(self) -> Fields:
        return self.event("fs.snapshot")

    @property
    def after(self) -> Fields:
        return self.event("fs.snapshot", 1)

    @property
    def changes(self) -> list[Fields]:
        return [data for name, data in self.events if name == "fs.change"]

    def change(self, path: str) -> Fields:
        return next(data for data in self.changes if data["path"] == path)

    def listed(self, path: str) -> Fields:
        return next(
            item for name in ("files", "directories") for item in self.manifest[name] if item["path"] == path
        )

    def claim(self, path: bytes | str | Fields, before: Fields | None, after: Fields | None) -> None:
        """Have all documents say that the run changed `path` so. Another claim about it is taken back."""
        named = path if isinstance(path, dict) else at(path)
        self.forget(named)
        states = {"before": before, "after": after}
        self.events.insert(
            self._end_of_changes(), ("fs.change", named | {k: v for k, v in states.items() if v is not None})
        )
        if before is not None:
            name = "directories" if before["kind"] == "directory" else "files"
            entry = {"path", "path_b64", "mode"} if name == "directories" else {*named, *before}
            self.manifest.setdefault(name, []).append(
                {k: v for k, v in (named | before).items() if k in entry and not (k == "size" and not v)}
            )

    def forget(self, named: Fields) -> None:
        """Have no document say anything of the path."""
        self.events = [
            (name, data)
            for name, data in self.events
            if name != "fs.change" or {k: data[k] for k in ("path", "path_b64") if k in data} != named
        ]
        for name in ("files", "directories"):
            listed = self.manifest.get(name, [])
            listed[:] = [
                item for item in listed if {k: item[k] for k in ("path", "path_b64") if k in item} != named
            ]

    def captures(self, before: str, after: str) -> None:
        self.before["capture"], self.after["capture"] = before, after

    def root(self, path: str) -> None:
        """Have all documents say that the run was of this tree."""
        self.started.update(path=path, cwd=path)
        self.manifest["root"] = {"path": path}
        self.receipt["session"] |= {"root": {"path": path}, "cwd": path}

    def run(self, id: str) -> None:
        self.started["run"] = self.manifest["run"] = self.receipt["session"]["id"] = id

    def seal(self, folder: Path, *, ordered: bool = True) -> Path:
        """Write the documents into `folder`, consistent with one another as far as that is possible."""
        folder.mkdir(exist_ok=True)
        if ordered:
            self._sort()
        self._count()
        manifest = encode(self.manifest)
        digest = hashlib.sha256(manifest).hexdigest()
        self.before["manifest"] = self.receipt["ops"]["snapshot"]["manifest"] = digest
        ended = self.event("run.end")
        ended["receipt"] = hashlib.sha256(
            encode({k: v for k, v in self.receipt.items() if k != "ledger"})
        ).hexdigest()
        head, lines = canonical.genesis(), []
        for seq, (kind, data) in enumerate(self.events):
            line, head = canonical.link(seq, f"2026-01-02T03:04:05.{seq:06d}Z", kind, encode(data), head)
            lines.append(line + b"\n" if not line.endswith(b"\n") else line)
        self.receipt["ledger"] = {"head": head, "events": len(lines)}
        (folder / "ledger.jsonl").write_bytes(b"".join(lines))
        (folder / "manifest.json").write_bytes(manifest)
        (folder / "receipt.json").write_bytes(encode(self.receipt))
        return folder

    def _end_of_changes(self) -> int:
        places = [n for n, (name, _) in enumerate(self.events) if name in ("fs.snapshot", "fs.change")]
        return places[-1] + 1

    def _sort(self) -> None:
        changes = sorted(self.changes, key=_name)
        first = next((n for n, (name, _) in enumerate(self.events) if name == "fs.change"), self._end_of_changes())
        others = [event for event in self.events if event[0] != "fs.change"]
        self.events = [*others[:first], *(("fs.change", data) for data in changes), *others[first:]]
        for name in ("files", "directories"):
            if self.manifest.get(name):
                self.manifest[name].sort(key=_name)
            else:
                self.manifest.pop(name, None)

    def _count(self) -> None:
        listed = self.manifest.get("files", [])
        files = {_name(item): item for item in listed}
        self._tell(self.before, files)
        self.before["not_covered"] = len(self.manifest.get("not_covered", ()))
        with suppress(ValueError, TypeError, KeyError, msgspec.ValidationError, RecursionError):
            self.manifest["tree"] = self.before["tree"]
        final = dict(files)
        for change in self.changes:
            final.pop(_name(change), None)
            if change.get("after") and change["after"].get("kind") != "directory":
                final[_name(change)] = change["after"]
        self._tell(self.after, final)
        kinds = list(map(_status, self.changes))
        counts = {k: kinds.count(k) for k in ("created", "modified", "deleted") if kinds.count(k)}
        ended = self.event("run.end")
        for name in ("created", "modified", "deleted"):
            ended.pop(name, None)
        ended.update(counts)
        self.receipt.pop("changes", None)
        if counts:
            self.receipt["changes"] = counts
        self.receipt["ops"]["snapshot"]["files"] = len(listed)
        self.receipt["ops"]["snapshot"]["taken"] = sum(
            bool(each.get("capture")) for each in (self.before, self.after)
        )

    def _tell(self, snapshot: Fields, files: dict[bytes, Fields]) -> None:
        snapshot["files"] = len(files)
        snapshot["bytes"] = sum(item.get("size", 0) for item in files.values())
        with suppress(ValueError, TypeError, KeyError, RecursionError, OverflowError):
            snapshot["tree"] = tree_id({path: _state(item) for path, item in files.items()})  # type: ignore[misc]


def _name(item: Fields) -> bytes:
    from putback.errors import IntegrityError

    try:
        return AtPath(path=item["path"], path_b64=item.get("path_b64", "")).name
    except IntegrityError:
        return item["path"].encode("utf-8", "backslashreplace")


def _state(item: Fields) -> State:
    return State(
        kind=Kind(item["kind"]), mode=item["mode"], size=item.get("size", 0), digest=item.get("digest", "")
    )


def _status(change: Fields) -> str:
    if change.get("before") is None:
        return "created"
    return "deleted" if change.get("after") is None else "modified"


def said(doctor: Doctor) -> Iterator[Fields]:
    """Every object that says something of a path, or of the state of one."""
    for change in doctor.changes:
        yield change
        yield from (change[name] for name in ("before", "after") if change.get(name))
    for name in ("files", "directories"):
        yield from doctor.manifest.get(name, [])
