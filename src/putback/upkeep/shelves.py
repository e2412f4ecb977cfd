"""The files of the private repository: packs, their indexes, loose objects, refs. Whether each is what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from putback.git import pack_file, pack_index, refs
from putback.git.command import Git
from putback.git.pack_file import PackFiles
from putback.progress import Progress
from putback.store.layout import Store

_PACKED = re.compile(rb"([0-9a-f]{64}) (refs/\S+)")
_ID = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = ("tmp_", ".tmp-")


class Shelves(msgspec.Struct):
    """What is wrong with the files. Packs and loose objects map to the fault; `side` are files git can do without.

    `suspect` are the raw ids of objects in packs of which something is wrong: they have to be read to be believed.
    """

    repository: str = ""
    packs: dict[PackFiles, str] = {}
    indexes: dict[PackFiles, str] = {}
    loose: dict[str, str] = {}
    side: dict[Path, str] = {}
    suspect: set[bytes] = set()
    leftovers: int = 0


class Refs(msgspec.Struct):
    """The refs of the store: ids of captures by workspace, and what is wrong, by file."""

    captures: dict[str, set[str]] = {}
    faulty: dict[Path, str] = {}


def look(store: Store, git: Git, chosen: Callable[[bytes], bool], whole: bool, progress: Progress) -> Shelves:
    """Look at the files. Of loose objects those that are `chosen` are inflated; with `whole` packs are hashed.

    Raises OSError.
    """
    found = Shelves()
    answer = git.run("rev-parse", "--show-object-format", accept={*range(-64, 256)})
    if answer.code or answer.out.strip() != b"sha256":
        found.repository = "git does not take it for a repository of ours"
    packs = pack_file.packs(store.objects)
    progress.start("reading packs", len(packs))
    for files in packs:
        judge(found, files, whole=whole)
        progress.advance()
    for path in pack_file.side_files(store.objects):
        fault = pack_file.checksum_fault(path)
        if fault:
            found.side[path] = fault
    for oid, path in pack_file.loose(store.objects):
        if chosen(bytes.fromhex(oid)):
            fault = pack_file.loose_fault(path, oid)
            if fault:
                found.loose[oid] = fault
    found.leftovers = sum(path.name.startswith(_TEMPORARY) for path in store.objects.glob("*/*"))
    return found


def judge(found: Shelves, files: PackFiles, *, whole: bool) -> None:
    """Note what is wrong with one pack. A pack whose index is faulty is always hashed: can it be made anew?"""
    fault = pack_file.index_fault(files)
    if fault:
        found.indexes[files] = fault
    if files.pack.exists() and (whole or fault):
        damage = pack_file.checksum_fault(files.pack)
        if damage:
            found.packs[files] = damage
    if files in found.packs or files in found.indexes:
        found.suspect |= pack_index.ids(files.index)


def holders(store: Store, oids: Iterable[str]) -> tuple[dict[str, Path], set[PackFiles]]:
    """Where copies of these objects lie: loose ones by id, and the packs that say they have any."""
    wanted = list(oids)
    loose = {oid: place for oid in wanted if (place := store.objects / oid[:2] / oid[2:]).exists()}
    raw = {bytes.fromhex(oid) for oid in wanted}
    packs = {
        files
        for files in pack_file.packs(store.objects)
        if raw and not raw.isdisjoint(pack_index.ids(files.index))
    }
    return loose, packs


def read_refs(store: Store) -> Refs:
    """Every ref of ours, read without git: it gives up on all of them where one is damaged. Raises OSError."""
    found = Refs()
    with suppress(FileNotFoundError):
        _read_packed(found, store.git_dir / "packed-refs")
    top = store.git_dir / refs.PREFIX
    for folder in sorted(top.iterdir()) if top.is_dir() else ():
        # Another workspace's may be dropped just now.
        with suppress(FileNotFoundError):
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                if not path.name.endswith((".lock", ".part")):
                    _read_loose(found, path)
    return found


def _read_packed(found: Refs, path: Path) -> None:
    data = path.read_bytes()
    for line in data.split(b"\n"):
        if not line or line.startswith((b"#", b"^")):
            continue
        match = _PACKED.fullmatch(line)
        if match is None:
            found.faulty[path] = "a line of it makes no sense"
        elif not _take(found, match[2].decode("ascii", "replace"), match[1].decode()):
            found.faulty[path] = f"the ref {match[2].decode('ascii', 'backslashreplace')!r} has another value"
    if not data.endswith(b"\n"):
        found.faulty[path] = "it is cut off"


def _read_loose(found: Refs, path: Path) -> None:
    try:
        value = b"" if path.is_symlink() or path.is_dir() else path.read_bytes()
    except FileNotFoundError:
        return
    if value != f"{path.name}\n".encode() or not _ID.fullmatch(path.name):
        found.faulty[path] = "its value is not the one in its name"
    else:
        found.captures.setdefault(path.parent.name, set()).add(path.name)


def _take(found: Refs, name: str, value: str) -> bool:
    """Note a packed ref; false where its value is not in its name. Refs of other kinds are none of ours."""
    if not name.startswith(refs.PREFIX + "/"):
        return True
    workspace, _, capture = name.removeprefix(refs.PREFIX + "/").partition("/")
    if capture == value:
        found.captures.setdefault(workspace, set()).add(capture)
    return capture == value
