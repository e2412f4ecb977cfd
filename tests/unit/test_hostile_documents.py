"""Doctored documents of a run, restored for real: they choose among what may be done anyway, and nothing else.

The forger of these tests knows the formats and has no access to the store: whatever is edited is sealed again, so
that verification without the store finds nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crash.killing import SETTINGS, World, fsck, in_child
from putback import seams
from putback.cli import main
from putback.errors import IntegrityError, PutbackError, RootDisagreement, StorageError
from putback.fs.root import Root
from putback.git import loose, packs, refs
from putback.git.objectid import object_id
from putback.paths import encode_b64
from putback.records.plan import Status
from putback.runs import events, evidence
from putback.runs.evidence import Evidence
from putback.runs.verify import Result, verify
from putback.workspace import Workspace
from support.doctor import Doctor, Fields, directory, file, link, said
from support.hermetic import settings
from support.hostile import CONTROLS, HONEST, NO_RUN, NOBODYS, SECRET, START, Place, cli, is_known, no_controls
from support.trees import File, Link, create, normal, read_back, same

_MADE: list[Place] = []


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if not _MADE:
        made = Place(tmp_path_factory.mktemp("hostile") / "place")
        made.build()
        _MADE.append(made)
    _MADE[0].load("fresh")
    yield _MADE[0]


@pytest.fixture(params=["known", "unknown"])
def either(request: pytest.FixtureRequest, place: Place) -> Place:
    """With the captures of the run in the store, and without."""
    if request.param == "unknown":
        place.forget_run()
    return place


Edit = Callable[[Doctor], object]


def consistent(folder: Path) -> None:
    failed = [
        (check.name, check.detail) for check in verify(Evidence(folder).load()) if check.result is Result.FAIL
    ]
    assert not failed


def refused(place: Place, edit: Edit, *paths: str, reason: str = "", check: bool = True) -> None:
    """Only these paths are refused, with that reason; whatever the run really did is taken back."""
    doctor = place.doctor()
    edit(doctor)
    doctor.seal(place.documents)
    if check:
        consistent(place.documents)
    found = place.restore()
    honest = {path: status for path, status in HONEST.items() if path not in paths}
    assert {path: found[path].status for path in found if path not in paths} == honest
    for path in paths:
        assert found[path].status is Status.REFUSED and re.search(reason, found[path].reason), found[path]
    tree = {path.decode(): entry for path, entry in place.tree.items() if path.decode() not in paths}
    same(tree, {path: entry for path, entry in normal(START).items() if path.decode() not in paths})


def untouched(place: Place, error: type[PutbackError], match: str, **options: Any) -> None:
    """The whole is refused, in the library and on the command line, and nothing is changed."""
    tree, beyond = place.tree, place.beyond
    with pytest.raises(error, match=match):
        place.workspace.restore_documents(place.documents, **options)
    same(place.tree, tree)
    assert place.beyond == beyond and not [entry for entry in place.workspace.list() if entry.of]


@contextmanager
def at_seam(name: str, action: Callable[[], object]) -> Iterator[list[str]]:
    """Do it once, the first time that this point is reached; the list says whether it was."""
    done: list[str] = []

    def observer(reached: str) -> None:
        if reached == name and not done:
            done.append(name)
            action()

    seams.observe(observer)
    try:
        yield done
    finally:
        seams.observe(None)


@pytest.mark.requirement("D9", "D19")
def test_documents_as_the_run_left_them_take_it_back(either: Place) -> None:
    """What the others start from: without captures, too, but for a link that leads out."""
    doctor = either.doctor()
    if not is_known(either):
        refused(either, lambda _: None, "way-out", reason="leads out")
        return
    doctor.seal(either.documents)
    consistent(either.documents)
    assert {path: item.status for path, item in either.restore().items()} == HONEST
    same(either.tree, START)


# --- one path is refused, the others go on ---------------------------------------------------------------------


def named(path: str, b64: str = "") -> Fields:
    return {"path": path, "path_b64": b64} if b64 else {"path": path}


UNSAFE = [
    *map(named, ("/etc/passwd", "//x", "../up", "src/../../up", "..", ".", "./a", "src/.", "src//a", "src/", "")),
    *map(named, (".git", ".git/hooks/post-checkout", "src/.GIT/config", "src/deep/.Git", "nul\0byte", "x" * 256)),
    named("/".join(["abcdefgh"] * 500)),
    *(named("weird", b64) for b64 in ("not base64!", "YQ", encode_b64(b"../up"), encode_b64(b"../\xff"))),
    named("..\\/\\xff", encode_b64(b"../\xff")),
    named("../\\xff", encode_b64(b"../\xff")),
]


@pytest.mark.requirement("D9", "D19")
@pytest.mark.parametrize("states", ["deleted", "created", "modified"])
@pytest.mark.parametrize("path", UNSAFE, ids=[repr(item)[9:50] for item in UNSAFE])
def test_an_unsafe_path_is_refused_and_the_others_go_on(place: Place, path: Fields, states: str) -> None:
    doctor = place.doctor()
    before, after = {
        "deleted": (file(b"a\n"), None),
        "created": (None, file(b"outside\n")),
        "modified": (file(b"a\n"), file(b"outside\n")),
    }[states]
    doctor.claim(path, before, after)
    doctor.seal(place.documents)
    tree = place.tree
    restored = place.workspace.restore_documents(place.documents)
    bad = [item for item in restored.outcomes if item.status is Status.REFUSED]
    assert len(bad) == 1 and re.search("path", bad[0].reason) and restored.applied == len(HONEST)
    same(place.tree, START)
    assert restored.failed and restored.entry is not None
    place.workspace.show(restored.entry.id)
    place.workspace.undo()
    same(place.tree, tree)


def test_an_unsafe_path_does_not_hide_other_damage(place: Place) -> None:
    """Nor do more of them than faults are kept: nobody knows what the rest would be."""
    doctor = place.doctor()
    for number in range(2):
        doctor.claim(f"../{number}", None, file(b"x"))
    doctor.seal(place.documents)
    ledger = place.documents / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b"broken", b"kaputt"))
    untouched(place, IntegrityError, "hash")
    for number in range(1001):
        doctor.claim(f"../{number}", None, file(b"x"))
    doctor.seal(place.documents)
    untouched(place, IntegrityError, "and more")


LEADING_OUT = {
    "file behind a link": ("out/secret", file(b"outside\n"), None),
    "new file behind a link": ("out/x", file(b"a\n"), None),
    "file behind a link, created": ("out/a", None, file(b"outside\n")),
    "far behind a link": ("out/deep/x/y", file(b"a\n"), None),
    "below a file": ("untouched/x", file(b"a\n"), None),
    "below a link to a file": ("link/x", file(b"a\n"), None),
}


@pytest.mark.requirement("D9", "D19")
@pytest.mark.parametrize("silent", [False, True], ids=["told", "silent"])
@pytest.mark.parametrize("name", LEADING_OUT)
def test_nothing_is_written_below_what_is_no_directory(place: Place, name: str, silent: bool) -> None:
    """Also where the manifest does not have the link: what stands there counts."""
    path, before, after = LEADING_OUT[name]
    for known in (True, False):
        place.load("fresh")
        if not known:
            place.forget_run()
        doctor = place.doctor()
        doctor.claim(path, before, after)
        if silent:
            doctor.forget({"path": path.split("/")[0]})
        doctor.seal(place.documents)
        tree = place.tree
        found = place.restore()
        assert found[path].status in (Status.REFUSED, Status.ABSENT), found[path]
        top = path.split("/")[0].encode()
        assert place.tree[top] == (tree[top] if silent else normal(START)[top])


@pytest.mark.requirement("D9", "D13")
@pytest.mark.parametrize("stands", ["link", "file"])
def test_what_somebody_put_in_the_place_of_a_directory_stays(either: Place, stands: str) -> None:
    """The ledger does not speak of `src`; a directory was made of it without asking."""
    shutil.rmtree(either.root / "src")
    if stands == "link":
        (either.root / "src").symlink_to("../outside")
    else:
        (either.root / "src").write_text("mine\n")
    mine = either.tree[b"src"]
    either.doctor().seal(either.documents)
    found = either.restore()
    assert {path for path in found if found[path].status is Status.REFUSED} >= {"src", "src/a", "src/deep/b"}
    assert either.tree[b"src"] == mine and (either.root / "gone").exists()
    found = either.restore(force=True)
    assert found["src"].status is Status.RESTORED and (either.root / "src/a").read_text() == "a\n"


@pytest.mark.requirement("D9", "D21")
@pytest.mark.parametrize("seam", ["restore.started", "restore.staged", "restore.publishing", "restore.before_put"])
def test_a_parent_that_becomes_a_link_meanwhile_leads_nowhere(place: Place, seam: str) -> None:
    place.doctor().seal(place.documents)
    beyond = place.beyond

    def swap() -> None:
        (place.root / "src").rename(place.root / "aside")
        (place.root / "src").symlink_to("../outside")

    with at_seam(seam, swap) as reached:
        try:
            restored = place.workspace.restore_documents(place.documents)
        except PutbackError:
            restored = None
    assert reached and place.beyond == beyond
    assert restored is None or restored.failed
    assert (place.root / "src").is_symlink()


WRONG_DIGESTS = ["a" * 63, "a" * 65, "A" * 64, "g" * 64, "../" + "a" * 61, "a" * 63 + "\n", "/etc/passwd"]


@pytest.mark.requirement("D10", "D19")
@pytest.mark.parametrize("digest", WRONG_DIGESTS)
def test_what_is_no_digest_is_refused(either: Place, digest: str) -> None:
    others = () if is_known(either) else ("way-out",)

    def edit(doctor: Doctor) -> None:
        state = {name: value for name, value in (file(b"a\n") | {"digest": digest}).items() if value}
        doctor.claim("x", state, None)
        doctor.claim("y", None, state)

    doctor = either.doctor()
    edit(doctor)
    doctor.seal(either.documents)
    found = either.restore()
    assert {path for path in found if found[path].status is Status.REFUSED} == {"x", "y", *others}
    assert "digest" in found["x"].reason and "digest" in found["y"].reason


@pytest.mark.requirement("D10", "D19")
@pytest.mark.parametrize("what", ["tree", "commit", "list", "nobody's", "other project's", "missing", "zeros"])
def test_a_digest_brings_nothing_but_content_of_this_workspace(either: Place, what: str) -> None:
    """Not the store's own objects, not the secret of another workspace of the same store."""
    with either.workspace._session("show") as session:
        capture = session.capture(refs.anchored(session.git, session.where.name)[0])
        digest = {
            "tree": capture.files_tree,
            "commit": capture.id,
            "list": capture._parts["directories"],
            "nobody's": object_id("blob", NOBODYS).hex(),
            "other project's": object_id("blob", SECRET).hex(),
            "missing": "d" * 64,
            "zeros": "0" * 64,
        }[what]
    others = () if is_known(either) else ("way-out",)
    doctor = either.doctor()
    doctor.claim("x", file(b"a\n") | {"digest": digest}, None)
    doctor.claim("untouched", file(b"a\n") | {"digest": digest}, file(b"mine\n"))
    doctor.claim("lk", link(b"a") | {"digest": digest}, None)
    consistent(doctor.seal(either.documents))
    found = either.restore()
    assert {path for path in found if found[path].status is Status.REFUSED} == {"x", "untouched", "lk", *others}
    assert (either.root / "untouched").read_text() == "mine\n" and not (either.root / "x").exists()
    assert not os.path.lexists(either.root / "lk")


@pytest.mark.requirement("D10", "D19")
@pytest.mark.parametrize("insist", [False, True], ids=["plain", "insist"])
@pytest.mark.parametrize("run", ["own", "other", "none"])
def test_documents_do_not_choose_the_captures_they_are_checked_against(
    place: Place, run: str, insist: bool
) -> None:
    """They name those of another project as theirs, and tell of what is between them."""
    doctor = place.doctor()
    doctor.captures(*place.other_captures)
    doctor.run({"own": place.run, "other": place.other_run, "none": NO_RUN}[run])
    doctor.claim("secret", file(SECRET), None)
    consistent(doctor.seal(place.documents))
    found = place.restore(insist=insist)
    assert found["secret"].status is Status.REFUSED and not (place.root / "secret").exists()
    assert found["gone"].status is Status.RECREATED


def test_with_the_tree_named_a_run_of_another_directory_is_checked_against_its_own_captures(place: Place) -> None:
    """A copy of the tree, say: what the run there did is known, and nothing else is done here."""
    copy = place.base / "own"
    shutil.copytree(place.root, copy, symlinks=True)
    workspace = Workspace.open(copy, store=place.store, settings=SETTINGS)
    workspace.snapshot("copied")
    doctor = place.doctor()
    doctor.claim("untouched", None, file(b"mine\n"))
    consistent(doctor.seal(place.documents))
    restored = workspace.restore_documents(place.documents, insist=True)
    same(read_back(copy), START)
    assert [item.path for item in restored.outcomes if item.status is Status.REFUSED] == ["untouched"]


@pytest.mark.requirement("D10")
@pytest.mark.parametrize("field", ["source", "from", "path_to_copy"])
@pytest.mark.parametrize("where", ["manifest", "entry", "change", "state", "start", "receipt"])
def test_no_document_has_a_place_for_a_file_to_copy_from(place: Place, where: str, field: str) -> None:
    doctor = place.doctor()
    target = {
        "manifest": doctor.manifest,
        "entry": doctor.listed("gone"),
        "change": doctor.change("gone"),
        "state": doctor.change("gone")["before"],
        "start": doctor.started,
        "receipt": doctor.receipt,
    }[where]
    target[field] = str(place.base / "outside/secret")
    doctor.seal(place.documents)
    untouched(place, IntegrityError, f"unknown field `{field}`")


@pytest.mark.requirement("D11", "D19")
@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1755, 0o7755, 0o100755, (1 << 40) | 0o755, (1 << 70) | 0o755])
def test_no_mode_is_restored_beyond_permission_bits(either: Place, mode: int) -> None:
    doctor = either.doctor()
    doctor.listed("run.sh")["mode"] = doctor.change("run.sh")["before"]["mode"] = mode
    doctor.listed("empty")["mode"] = doctor.change("empty")["before"]["mode"] = mode
    doctor.seal(either.documents)
    found = either.restore()
    assert found["run.sh"].status is Status.RESTORED
    assert stat.S_IMODE((either.root / "run.sh").stat().st_mode) == 0o755
    assert found["empty"].status is (Status.REFUSED if is_known(either) else Status.RESTORED)


@pytest.mark.parametrize("mode", [-1, -(1 << 70), 0o644])
def test_a_mode_that_never_was_is_refused_where_the_captures_tell(place: Place, mode: int) -> None:
    doctor = place.doctor()
    doctor.listed("run.sh")["mode"] = doctor.change("run.sh")["before"]["mode"] = mode
    doctor.change("run.sh")["after"]["mode"] = 0o600
    doctor.seal(place.documents)
    assert place.restore()["run.sh"].status is Status.REFUSED
    assert stat.S_IMODE((place.root / "run.sh").stat().st_mode) == 0o644


@pytest.mark.requirement("D12")
def test_documents_of_another_tree_are_refused_as_a_whole(place: Place) -> None:
    doctor = place.doctor()
    doctor.root(str(place.base / "outside"))
    doctor.seal(place.documents)
    untouched(place, RootDisagreement, "outside")
    assert main.run(cli(place, "restore", "--from", str(place.documents), "--yes")) == 2
    doctor = place.doctor()
    doctor.manifest["root"] = {"path": str(place.base / "outside")}
    doctor.seal(place.documents)
    untouched(place, RootDisagreement, "do not agree")
    for root in ("relative", "/", "/..", str(place.root) + "/", str(place.root) + "/../tree", "\0"):
        doctor.root(root)
        doctor.seal(place.documents)
        untouched(place, RootDisagreement, "")
    assert not place.restore(insist=True)["gone"].reason


@pytest.mark.requirement("D19")
def test_documents_of_different_runs_are_refused_as_a_whole(place: Place) -> None:
    create(place.root, {"gone": "again\n"})
    second = place.workspace.run(("sh", "-c", "rm gone untouched"), snapshot=True)
    for name in ("ledger.jsonl", "manifest.json", "receipt.json"):
        shutil.rmtree(place.documents, ignore_errors=True)
        shutil.copytree(place.folder, place.documents)
        shutil.copy(second.folder / name, place.documents / name)
        untouched(place, IntegrityError, "another run|not the one")
    for document in (place.folder, second.folder):
        assert not [check for check in place.workspace.runs.verify(document.name) if check.result is Result.FAIL]
    shutil.rmtree(place.folder)
    shutil.copytree(second.folder, place.workspace.paths.runs / place.run)
    with pytest.raises(IntegrityError, match="another run"):
        place.workspace.restore(place.run)
    failed = {check.name for check in place.workspace.runs.verify(place.run) if check.result is Result.FAIL}
    assert failed == {"ledger against the history"}


@pytest.mark.parametrize("name", ["manifest", "receipt"])
def test_a_document_that_names_another_run_is_refused(place: Place, name: str) -> None:
    """Though the ledger names this very document."""
    doctor = place.doctor()
    (doctor.manifest if name == "manifest" else doctor.receipt["session"]).update({"run": NO_RUN, "id": NO_RUN})
    for field, part in (("id", doctor.manifest), ("run", doctor.receipt["session"])):
        part.pop(field, None)
    doctor.seal(place.documents)
    untouched(place, IntegrityError, f"the {name} is that of another run")


def test_a_run_is_checked_against_its_own_captures_and_not_those_of_a_later_one(place: Place) -> None:
    place.workspace.run(("sh", "-c", "echo later > later"), snapshot=True)
    place.doctor().seal(place.documents)
    assert {path: item.status for path, item in place.restore().items()} == HONEST


@pytest.mark.parametrize("run", ["", "x", "A" * 64, "\x1b[2J", "a" * 65, "0" * 1_000_000])
def test_a_run_is_named_by_an_id_or_not_at_all(place: Place, run: str) -> None:
    doctor = place.doctor()
    doctor.run(run)
    doctor.seal(place.documents)
    untouched(place, IntegrityError, "id is not 64")


@pytest.mark.parametrize("name", ["manifest", "receipt"])
def test_a_document_that_the_ledger_does_not_name_is_refused(place: Place, name: str) -> None:
    doctor = place.doctor()
    doctor.seal(place.documents)
    data = (place.documents / f"{name}.json").read_bytes()
    other = data.replace(*((b'"untouched"', b'"untouchee"') if name == "manifest" else (b"broken", b"kaputt")))
    assert other != data
    (place.documents / f"{name}.json").write_bytes(other)
    untouched(place, IntegrityError, f"the {name} is not the one that the ledger names")


NEVER_HAPPENED: dict[str, tuple[str, Fields | None, Fields | None]] = {
    "created": ("untouched", None, file(b"mine\n")),
    "modified": ("untouched", file(b"a\n"), file(b"mine\n")),
    "mode": ("untouched", file(b"mine\n", 0o777), file(b"mine\n")),
    "deleted": ("never", file(b"a\n"), None),
    "directory created": ("folder", None, directory()),
    "directory deleted": ("never", directory(0o777), None),
    "a link for a file": ("untouched", link(b"app.py"), file(b"mine\n")),
    "a file for a link": ("out", file(b"a\n"), link(b"../outside")),
    "a directory for a file": ("untouched", directory(0o777), file(b"mine\n")),
    "a file for a directory": ("folder", file(b"a\n"), directory()),
    "other content than it had": ("gone", file(b"a\n"), None),
    "other mode than it had": ("gone", file(b"gone\n", 0o777), None),
    "other kind than it had": ("gone", link(b"app.py"), None),
}


@pytest.mark.requirement("D19")
@pytest.mark.parametrize("name", NEVER_HAPPENED)
def test_what_never_happened_is_not_taken_back(place: Place, name: str) -> None:
    path, before, after = NEVER_HAPPENED[name]
    tree = place.tree
    doctor = place.doctor()
    doctor.claim(path, before, after)
    if name == "a file for a directory":
        doctor.forget({"path": "folder/inside"})
    consistent(doctor.seal(place.documents))
    found = place.restore()
    assert found[path].status is Status.REFUSED and "contradict" in found[path].reason
    assert {path: item.status for path, item in found.items()} == HONEST | {path: Status.REFUSED}
    assert place.tree.get(path.encode()) == tree.get(path.encode())


@pytest.mark.requirement("D19")
@pytest.mark.parametrize("name", NEVER_HAPPENED)
def test_without_captures_what_never_happened_can_be_undone(place: Place, name: str) -> None:
    """`restore` of the place undoes it, and compares every byte."""
    path, before, after = NEVER_HAPPENED[name]
    place.forget_run()
    doctor = place.doctor()
    doctor.claim(path, before, after)
    if name == "a file for a directory":
        doctor.forget({"path": "folder/inside"})
    consistent(doctor.seal(place.documents))
    found = place.restore()
    assert set(found) == {*HONEST, path}
    assert all(item.status.applied or item.status in (Status.REFUSED, Status.SKIPPED) for item in found.values())


def test_a_file_that_is_ignored_is_held_before_it_is_removed(place: Place) -> None:
    create(place.root, {".gitignore": "ignored\n", "ignored": "precious\n"})
    place.forget_run()
    create(place.root, {".gitignore": "ignored\n", "ignored": "precious\n"})
    doctor = place.doctor()
    doctor.claim("ignored", None, file(b"precious\n"))
    consistent(doctor.seal(place.documents))
    assert place.restore()["ignored"].status is Status.REMOVED


@pytest.mark.requirement("D10", "D19")
def test_kinds_are_not_exchanged_without_captures(place: Place) -> None:
    """The text of a link is content, too, and any content could be the text of a link."""
    place.forget_run()
    doctor = place.doctor()
    doctor.claim("lk", file(b"a\n") | {"kind": "symlink", "mode": 0o777}, None)
    doctor.claim("fl", link(b"app.py") | {"kind": "file", "mode": 0o644}, None)
    consistent(doctor.seal(place.documents))
    found = place.restore()
    assert "holds a symlink with" in found["lk"].reason and "holds a file with" in found["fl"].reason


@pytest.mark.requirement("D9", "D19")
def test_a_link_that_leads_out_needs_the_captures_of_the_run(place: Place) -> None:
    place.forget_run()
    doctor = place.doctor()
    doctor.claim("lk", link(b"../outside"), None)
    doctor.claim("src/lk", link(b"../outside"), None)
    consistent(doctor.seal(place.documents))
    found = place.restore()
    assert found["lk"].status is Status.REFUSED and "leads out" in found["lk"].reason
    assert found["src/lk"].status is Status.RECREATED, "from there it stays inside"
    assert found["way-out"].status is Status.REFUSED


def test_a_capture_before_the_run_is_enough_to_contradict(place: Place) -> None:
    """Where what the run left was too much to be held, there is no capture after it."""
    tree = place.base / "own"
    create(tree, {".gitignore": "ignored\n", "ignored": "i\n", "a": "a\n", "untouched": "mine\n", "mode": "m\n"})
    small = Workspace.open(tree, store=place.store, settings=settings(max_new_bytes=1000))
    run = small.run(("sh", "-c", "head -c 5000 /dev/urandom > huge; rm a; chmod 600 mode"), snapshot=True)
    assert run.entry.before and not run.entry.after
    doctor = Doctor(run.folder)
    doctor.claim("untouched", None, file(b"mine\n"))
    doctor.claim("ignored", None, file(b"i\n"))
    doctor.claim("never", file(b"mine\n"), None)
    doctor.listed("mode")["mode"] = doctor.change("mode")["before"]["mode"] = 0o666
    doctor.seal(place.documents)
    workspace = Workspace.open(tree, store=place.store, settings=SETTINGS)
    found = {item.path: item for item in workspace.restore_documents(place.documents).outcomes}
    assert {path: str(item.status) for path, item in found.items()} == {
        "a": "recreated",
        "huge": "removed",
        "ignored": "refused",
        "mode": "refused",
        "never": "refused",
        "untouched": "refused",
    }
    rest = {".gitignore": "ignored\n", "ignored": "i\n", "a": "a\n", "untouched": "mine\n"}
    same(read_back(tree), {**rest, "mode": File(b"m\n", 0o600)})


@pytest.mark.requirement("D9")
def test_what_is_below_a_refused_directory_is_refused_with_it(place: Place) -> None:
    doctor = place.doctor()
    doctor.claim("src/deep", directory(0o777), None)
    consistent(doctor.seal(place.documents))
    found = place.restore()
    assert "contradict" in found["src/deep"].reason and "is not put back" in found["src/deep/b"].reason
    assert not (place.root / "src/deep").exists() and (place.root / "src/a").exists()


@pytest.mark.requirement("D9")
def test_a_store_inside_the_workspace_is_out_of_reach(tmp_path: Path) -> None:
    tree, store = tmp_path / "tree", tmp_path / "tree/.store"
    create(tree, {"a": "a\n"})
    workspace = Workspace.open(tree, store=store, settings=SETTINGS)
    run = workspace.run(("rm", "a"), snapshot=True)
    doctor = Doctor(run.folder)
    doctor.run(NO_RUN)
    marker = (store / "store.json").read_bytes()
    doctor.claim(".store/store.json", None, file(marker))
    doctor.claim(".store/x/y", file(b"a\n"), None)
    consistent(doctor.seal(tmp_path / "documents"))
    found = {item.path: item for item in workspace.restore_documents(tmp_path / "documents").outcomes}
    assert found["a"].status is Status.RECREATED
    for path in (".store/store.json", ".store/x/y"):
        assert found[path].status is Status.REFUSED and "store" in found[path].reason
    assert (store / "store.json").read_bytes() == marker


@pytest.mark.requirement("D9")
def test_a_second_name_outside_keeps_its_mode(place: Place) -> None:
    """A change of the mode alone would reach every name of the file."""
    place.forget_run()
    (place.root / "untouched").unlink()
    os.link(place.base / "outside/secret", place.root / "hard")
    place.workspace.snapshot("with a second name")
    doctor = place.doctor()
    doctor.claim("hard", file(b"outside\n", 0o777), file(b"outside\n"))
    consistent(doctor.seal(place.documents))
    assert place.restore()["hard"].status is Status.RESTORED
    assert stat.S_IMODE((place.base / "outside/secret").stat().st_mode) == 0o644
    assert stat.S_IMODE((place.root / "hard").stat().st_mode) == 0o777


def test_a_damaged_capture_does_not_keep_the_others_from_being_asked(place: Place) -> None:
    place.forget_run()
    damaged = place.workspace.snapshot("damaged").id
    (place.store / "objects.git/objects" / damaged[:2] / damaged[2:]).unlink()
    place.doctor().seal(place.documents)
    found = {item.path: item for item in place.workspace.restore_documents(place.documents).outcomes}
    assert found["gone"].status is Status.RECREATED


def test_captures_of_another_workspace_are_no_evidence(place: Place) -> None:
    doctor = place.doctor()
    doctor.captures(*place.other_captures)
    doctor.before["tree"] = doctor.after["tree"] = ""
    consistent(doctor.seal(place.documents))
    shutil.copytree(place.documents, place.folder, dirs_exist_ok=True)
    found = {check.name: check for check in place.workspace.runs.verify(place.run)}
    assert "no such capture" in found["captures in the store"].detail
    assert found["ledger against the history"].result is Result.FAIL


def test_a_command_of_any_length_has_a_short_message(place: Place) -> None:
    doctor = place.doctor()
    doctor.started["command"] = doctor.receipt["session"]["command"] = [
        "x" * 100,
        *("y" * 1_000_000 for _ in "ab"),
    ]
    consistent(doctor.seal(place.documents))
    place.restore()
    entries = [entry for entry in place.workspace.list() if entry.of == place.run]
    assert entries and all(len(entry.message) <= 1000 for entry in entries)


# --- the whole is refused --------------------------------------------------------------------------------------


def test_conflicting_changes_are_damage(place: Place) -> None:
    doctor = place.doctor()
    changes = [event for event in doctor.events if event[0] == "fs.change"]
    doctor.events.insert(doctor.events.index(changes[-1]) + 1, (changes[0][0], dict(changes[0][1])))
    doctor.seal(place.documents, ordered=False)
    untouched(place, IntegrityError, "not in path order")
    doctor.seal(place.documents)
    untouched(place, IntegrityError, "one path twice")


def test_a_path_that_the_manifest_has_twice_is_refused(place: Place) -> None:
    def edit(doctor: Doctor) -> None:
        doctor.manifest["files"].append(doctor.listed("gone") | file(b"a\n"))

    refused(place, edit, "gone", reason="more than once", check=False)


@pytest.mark.parametrize("name", ["ledger.jsonl", "manifest.json", "receipt.json"])
@pytest.mark.parametrize("kind", ["pipe", "link", "loop", "directory", "empty", "zeros", "nested", "torn"])
def test_what_is_no_document_is_refused(place: Place, name: str, kind: str, capsys: Any) -> None:
    shutil.copytree(place.folder, place.documents)
    document = place.documents / name
    data = document.read_bytes()
    document.unlink()
    if kind == "pipe":
        os.mkfifo(document)
    elif kind == "link":
        document.symlink_to(place.folder / name)
    elif kind == "loop":
        document.symlink_to(name)
    elif kind == "directory":
        document.mkdir()
    else:
        nested = b"[" * 200_000 + b"\n"
        document.write_bytes({"empty": b"", "zeros": bytes(10_000), "nested": nested, "torn": data[:-2]}[kind])
    if (name, kind) == ("ledger.jsonl", "empty"):
        untouched(place, PutbackError, "not complete")
    else:
        untouched(place, IntegrityError, f"damaged {name}")
    for command in ("plan", "verify"):
        code = main.run(cli(place, command, str(place.documents)))
        assert code in (1, 46), command
        assert no_controls(capsys.readouterr())


def test_documents_that_are_too_large_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(place.folder, place.documents)
    with monkeypatch.context() as patch:
        patch.setattr(evidence, "MAX_MANIFEST_BYTES", 100)
        untouched(place, IntegrityError, "damaged manifest.json: larger than 100 bytes")
    with monkeypatch.context() as patch:
        patch.setattr(evidence, "MAX_RECEIPT_BYTES", 100)
        untouched(place, IntegrityError, "damaged receipt.json: larger than 100 bytes")
    with open(place.documents / "ledger.jsonl", "ab") as ledger:
        ledger.truncate(events.MAX_LINE_BYTES * 3)
    untouched(place, IntegrityError, "longer than")


def test_no_folder_is_no_run(place: Place) -> None:
    for folder in (place.base / "nowhere", place.base / "outside/secret", place.base / "outside"):
        with pytest.raises(PutbackError):
            place.workspace.restore_documents(folder)


def test_many_entries_and_deep_ones_end(place: Place) -> None:
    doctor = place.doctor()
    deep = "/".join(["d"] * 2000)
    for path in [deep, *(f"many/{number}" for number in range(3000))]:
        state = file(b"a\n")
        doctor.events.insert(-1, ("fs.change", {"path": path, "before": state}))
        doctor.manifest["files"].append({"path": path, **state})
    doctor.seal(place.documents)
    consistent(place.documents)
    restored = place.workspace.restore_documents(place.documents)
    assert restored.applied == len(HONEST)
    assert sum(item.status is Status.REFUSED for item in restored.outcomes) == 3001
    same(place.tree, START)


# --- any mutation at all ---------------------------------------------------------------------------------------

_PATHS = st.sampled_from(
    [
        *(
            "app.py",
            "src",
            "src/a",
            "src/deep",
            "src/deep/b",
            "gone",
            "untouched",
            "folder",
            "folder/inside",
            "out",
        ),
        *("out/secret", "link", "link/x", "new", "new/file", "never", "never/x", "empty", "run.sh"),
        *("way-out", "../outside/secret", "/etc/passwd", ".git/config", "", "a//b", "src/../x", "x\0y", "\x1b[2J"),
    ]
)
_CONTENTS = (b"a\n", b"b\n", b"gone\n", b"mine\n", b"app.py", b"../outside", b"run.sh", b"new\n", NOBODYS, SECRET)
_DIGESTS = st.sampled_from(
    [*(object_id("blob", each).hex() for each in _CONTENTS), "", "A" * 64, "0" * 64, "../x"]
)
_MODES = st.sampled_from([0o644, 0o755, 0o600, 0o777, 0, 0o4755, 0o7777, -1, 1 << 65, 0o700, 0o750])
_STATES = st.one_of(
    st.none(),
    st.builds(
        lambda kind, mode, size, digest: (
            {"kind": kind, "mode": mode}
            | ({"size": size} if size else {})
            | ({"digest": digest} if digest else {})
        ),
        st.sampled_from(["file", "symlink", "directory"]),
        _MODES,
        st.sampled_from([0, 2, 5, 6, 1 << 62]),
        _DIGESTS,
    ),
)
_ANY = st.one_of(
    _PATHS, _DIGESTS, _MODES, st.none(), st.lists(_PATHS, max_size=2), st.sampled_from([1.5, {}, True])
)
_NUMBER = st.integers(0, 1 << 16)


def _pick(items: list[Any], number: int) -> Any:
    return items[number % len(items)] if items else {}


def _set(doctor: Doctor, number: int, key: int, value: Any) -> None:
    """Any field of any document."""
    objects = [
        *said(doctor),
        doctor.manifest,
        doctor.receipt,
        doctor.receipt["session"],
        *(data for _, data in doctor.events),
    ]
    target = _pick(objects, number)
    names = list(target)
    if names and not (target is doctor.receipt and _pick(names, key) in ("ops", "session")):
        target[_pick(names, key)] = value


def _swap(doctor: Doctor, number: int, other: int) -> None:
    one, two = _pick(doctor.changes, number), _pick(doctor.changes, other)
    for name in ("before", "after"):
        mine, yours = one.pop(name, None), two.pop(name, None)
        one.update({name: yours} if yours is not None else {})
        two.update({name: mine} if mine is not None else {})


def _turn(doctor: Doctor, number: int) -> None:
    change = _pick(doctor.changes, number)
    before, after = change.pop("before", None), change.pop("after", None)
    change.update({k: v for k, v in (("before", after), ("after", before)) if v is not None})


def _drop(doctor: Doctor, number: int) -> None:
    if doctor.changes:
        doctor.events.remove(("fs.change", _pick(doctor.changes, number)))


def _repeat(doctor: Doctor, number: int) -> None:
    entries = doctor.manifest.get("files", [])
    entries.append(dict(_pick(entries, number)))


_MUTATIONS = st.one_of(
    st.tuples(st.just(Doctor.claim), _PATHS, _STATES, _STATES),
    st.tuples(st.just(_set), _NUMBER, _NUMBER, _ANY),
    st.tuples(st.just(_swap), _NUMBER, _NUMBER),
    st.tuples(st.just(_turn), _NUMBER),
    st.tuples(st.just(_drop), _NUMBER),
    st.tuples(st.just(_repeat), _NUMBER),
    st.tuples(st.just(lambda doctor, path: doctor.forget({"path": path})), _PATHS),
)
_EDITS: list[Callable[[Path], object]] = [
    lambda root: None,
    lambda root: (root / "untouched").write_text("edited since\n"),
    lambda root: (shutil.rmtree(root / "src"), (root / "src").symlink_to("../outside")),
    lambda root: (shutil.rmtree(root / "new"), (root / "new").write_text("a file\n")),
    lambda root: (root / "gone").mkdir(),
    lambda root: ((root / "app.py").unlink(), os.mkfifo(root / "app.py")),
]


@pytest.mark.requirement("D9", "D10", "D11", "D19")
@hypothesis.settings(max_examples=hypothesis.settings.default.max_examples)
@given(
    mutations=st.lists(_MUTATIONS, min_size=1, max_size=6),
    edit=st.sampled_from(range(len(_EDITS))),
    known=st.booleans(),
    force=st.booleans(),
    flip=st.one_of(st.none(), _NUMBER),
)
def test_no_mutation_does_harm(
    mutations: list[tuple[Any, ...]], edit: int, known: bool, force: bool, flip: int | None, any_place: Place
) -> None:
    """Refused or harmless: nothing outside changes, nothing is lost, and no content or mode comes from nowhere."""
    place = any_place
    place.load("fresh" if known else "forgotten")
    _EDITS[edit](place.root)
    doctor = place.doctor()
    try:
        for apply, *arguments in mutations:
            apply(doctor, *arguments)
        doctor.seal(place.documents)
    except (TypeError, ValueError, AttributeError, LookupError):
        return  # nobody could write these
    if flip is not None and flip % 4 == 0:
        document = place.documents / ("ledger.jsonl", "manifest.json", "receipt.json")[flip % 3]
        data = bytearray(document.read_bytes())
        data[flip * 7919 % len(data)] ^= 1 << flip % 7
        document.write_bytes(data)
    before, beyond = place.tree, place.beyond
    try:
        restored = place.workspace.restore_documents(place.documents, force=force)
    except PutbackError:
        same(place.tree, before)
        assert place.beyond == beyond
        return
    after = place.tree
    assert place.beyond == beyond
    held = {entry.content for entry in normal(START).values() if isinstance(entry, File)}
    held |= {entry.content for entry in before.values() if isinstance(entry, File)}
    for path, entry in after.items():
        then, now = normal(START).get(path), before.get(path)
        if known:
            assert entry in (then, now), f"{path!r}: {entry}, then {then}, now {now}"
        elif isinstance(entry, File):
            assert entry.content in held and entry.mode <= 0o777
        elif isinstance(entry, Link) and entry != now:
            assert not os.path.normpath(os.path.join(os.path.dirname(path), os.fsencode(entry.target))).startswith(
                (b"..", b"/")
            )
    assert any(outcome.status.applied for outcome in restored.outcomes) or after == before
    if restored.entry is not None:
        assert not place.workspace.undo().failed
    same(place.tree, before)


@pytest.fixture(scope="module")
def any_place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One place for all examples, saved as it was after the run, and without the run."""
    made = Place(tmp_path_factory.mktemp("any") / "place")
    made.build()
    made.forget_run()
    made.save("forgotten")
    return made


# --- content is whole, statuses are told, the model says what it leaves out -----------------------------------


@pytest.mark.requirement("D6")
@pytest.mark.parametrize("writer", ["loose", "pack"])
@pytest.mark.parametrize("how", ["killed", "fails"])
def test_content_appears_under_its_digest_only_whole(tmp_path: Path, writer: str, how: str) -> None:
    """Killed, or out of space, at each write of a capture in turn: never a partial object under its name."""
    world = World(tmp_path / "world")
    number = 70 if writer == "pack" else 3
    start = {f"file-{index}": os.urandom(2000) for index in range(number)}
    create(world.root, start)
    world.workspace.snapshot("first")
    for failing in range(6):
        create(world.root, {f"file-{index}": os.urandom(2000) for index in range(number)})
        left = failing

        def broken(path: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal left
            opened = open(path, *arguments, **options)  # noqa: SIM115
            if "w" in opened.mode:
                left -= 1
                if left < 0:
                    return _Half(opened, how)
            return opened

        def action(broken: Any = broken) -> None:
            for module in (loose, packs):
                module.open = broken
            with suppress(StorageError):
                world.workspace.snapshot("broken")

        in_child(action)
        for path in world.store.glob("objects.git/objects/??/*"):
            data = zlib.decompress(path.read_bytes())
            assert sha256(data).hexdigest() == path.parent.name + path.name
        fsck(world.store)
        taken = world.workspace.snapshot("whole")
        fsck(world.store)
        found = {str(node.digest) for node in world.workspace.files(taken.id).values()}
        assert found == {object_id("blob", getattr(entry, "content", b"")).hex() for entry in world.tree.values()}


class _Half:
    """A file that takes half of what is written to it, once."""

    def __init__(self, file: Any, how: str) -> None:
        self._file = file
        self._how = how

    def __enter__(self) -> _Half:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        if self._how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(28, "No space left on device")


Prepare = Callable[[Place, pytest.MonkeyPatch], object]


def _fail_to_publish(place: Place, patch: pytest.MonkeyPatch) -> None:
    true = Root.publish_at

    def publish(root: Root, staged: Any, target: Any) -> None:
        if target.name == b"gone":
            raise OSError(5, "Input/output error")
        true(root, staged, target)

    patch.setattr(Root, "publish_at", publish)


def _nothing(place: Place, patch: pytest.MonkeyPatch) -> None: ...


STATUSES: list[tuple[str, Prepare, dict[str, Status], int]] = [
    ("done", _nothing, HONEST, 0),
    ("drift", lambda place, _: create(place.root, {"app.py": "mine\n"}), {"app.py": Status.REFUSED}, 1),
    ("gone already", lambda place, _: shutil.rmtree(place.root / "new"), {"new/file": Status.ABSENT}, 0),
    ("back already", lambda place, _: create(place.root, {"gone": "gone\n"}), {"gone": Status.SKIPPED}, 0),
    ("not empty", lambda place, _: create(place.root, {"new/mine": "mine\n"}), {"new": Status.SKIPPED}, 0),
    ("fails", _fail_to_publish, {"gone": Status.FAILED, "new/file": Status.SKIPPED}, 1),
]


@pytest.mark.requirement("D15")
@pytest.mark.parametrize(
    ("prepare", "expected", "code"), [row[1:] for row in STATUSES], ids=[r[0] for r in STATUSES]
)
@pytest.mark.parametrize("by", ["run", "documents"])
def test_each_status_is_told_and_bad_ones_make_the_exit_code_1(
    place: Place,
    prepare: Prepare,
    expected: dict[str, Status],
    code: int,
    by: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare(place, monkeypatch)
    what = (place.run,) if by == "run" else ("--from", str(place.folder))
    tree = place.tree
    assert main.run(cli(place, "restore", *what, "--dry-run")) == (
        code if expected.get("app.py") == "refused" else 0
    )
    same(place.tree, tree)
    capsys.readouterr()
    assert main.run(cli(place, "restore", *what, "--yes")) == code
    lines = capsys.readouterr().out.splitlines()
    told = dict(reversed(line.split()[:2]) for line in lines[:-1])
    assert set(told) == set(HONEST)
    assert {path: told[path] for path in expected} == {path: str(status) for path, status in expected.items()}
    assert lines[-1].startswith(f"{sum(Status(status).applied for status in told.values())} paths put back")


def test_every_status_of_a_restore_is_in_the_table() -> None:
    assert {status for row in STATUSES for status in row[2].values()} == set(Status) - {Status.MERGED}


@pytest.mark.requirement("D21")
def test_the_threat_model_says_what_is_not_addressed() -> None:
    text = (Path(__file__).parents[2] / "docs/threat-model.md").read_text()
    left_out = " ".join(text.partition("## What does not")[2].split())
    assert "**A hostile local writer.**" in left_out and "between our last look at a path and its" in left_out
    assert "**Authorship.**" in left_out and "It never shows who wrote them" in left_out
    assert "putback is no sandbox" in " ".join(text.split())


# --- what is printed -------------------------------------------------------------------------------------------


def _paint(value: Any) -> Any:
    """The same document with control characters in every text that is not read by a program."""
    if isinstance(value, dict):
        return {name: _paint(item) if name not in _READ else item for name, item in value.items()}
    if isinstance(value, list):
        return [_paint(item) for item in value]
    return value + CONTROLS if isinstance(value, str) else value


_READ = {
    *(
        "format",
        "kind",
        "discipline",
        "status",
        "by",
        "digest",
        "tree",
        "manifest",
        "capture",
        "when",
        "id",
        "run",
    ),
    *("reason", "limit", "path_b64"),
}


def test_nothing_in_a_document_moves_the_cursor(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    doctor = place.doctor()
    doctor.receipt["breaches"] = [{"limit": "files", "allowed": "1", "measured": "2", "detail": "x"}]
    doctor.receipt["verification"] = {"command": "x", "exit": 1, "output": "y"}
    survivor = {"pid": 1, "command": "c", "fate": "left"}
    doctor.receipt["session"]["exit"]["survivors"] = [survivor]
    doctor.receipt["ops"]["rollback"] = {"applied": 0, "trigger": "x", "reason": "because"}
    doctor.manifest, doctor.receipt = _paint(doctor.manifest), _paint(doctor.receipt)
    doctor.events = [(kind, _paint(data)) for kind, data in doctor.events]
    doctor.seal(place.documents)
    shutil.copytree(place.documents, place.folder, dirs_exist_ok=True)
    for command in (
        *(
            ("plan", str(place.documents)),
            ("verify", str(place.documents)),
            ("verify", place.run),
            ("plan", place.run),
        ),
        *(("show", place.run), ("restore", place.run, "--yes"), ("list",), ("undo", "--dry-run"), ("show", "@1")),
        *(("restore", "--from", str(place.documents), "--root", str(place.root), "--dry-run"),),
        *(("restore", "--from", str(place.documents), "--root", str(place.root), "--yes"),),
    ):
        code = main.run(cli(place, *command))
        said = capsys.readouterr()
        assert code in (0, 1, 2, 46), (command, said)
        assert no_controls(said), (command, said)


def test_no_message_moves_the_cursor(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it quotes, and however it does."""

    def fail(_: Workspace, **chosen: object) -> None:
        raise PutbackError(f"because of {CONTROLS}", hint=CONTROLS)

    monkeypatch.setattr(Workspace, "listing", fail)
    assert main.run(cli(place, "list")) == 70
    said = capsys.readouterr()
    assert no_controls(said) and "because of \\x1b[2J" in said.err


@pytest.mark.parametrize("name", ["@1", "0123456", "f" * 64])
def test_a_directory_called_like_an_id_does_not_pass_for_a_run(
    place: Place, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command makes it where the user will ask, with documents that say what it likes."""
    doctor = place.doctor()
    doctor.claim("forged", None, file(b"x"))
    doctor.seal(place.root / name)
    consistent(place.root / name)
    for command in ("plan", "verify"):
        code = main.run(cli(place, command, name))
        said = capsys.readouterr()
        assert "forged" not in said.out
        assert (code == 0 and "no store" not in said.out) if name == "@1" else code == 2
        assert main.run(cli(place, command, f"./{name}")) == 0
        said = capsys.readouterr()
        assert ("forged" if command == "plan" else "no store") in said.out


def test_no_plan_is_made_of_damaged_documents(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(place.folder, place.documents)
    ledger = place.documents / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"gone"', b'"mine"'))
    assert main.run(cli(place, "plan", str(place.documents))) == 46
    assert "damaged ledger.jsonl" in capsys.readouterr().err
