"""A work tree of its own for a binding: made without touching the rest, found again, removed without loss."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crash.killing import in_child, kill_at, reached
from putback import seams
from putback.errors import (
    FailedError,
    LockedError,
    NotOwned,
    OverlappingClaim,
    PutbackError,
    RefusedError,
    UnsuitableRoot,
    UsageError,
)
from putback.fs import lock
from putback.git import worktrees
from putback.progress import SILENT
from putback.records.turn import Deed
from putback.turns import binding as bindings
from putback.turns.ownership import Bound, Disposition, Released
from support.claims import Registry, repository_at
from support.hermetic import git
from support.trees import File, Link, create, normal, read_back, same

ALARM = "#!/bin/sh\necho ran >> {place}\ncat\n"


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path)


@pytest.fixture
def main(tmp_path: Path) -> Path:
    return repository_at(tmp_path / "main")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "main.worktrees" / "agent"


def bind(registry: Registry, main: Path, **chosen: object) -> Bound:
    return registry.bind(main, "agent", provider="git-worktree", **chosen)


def files(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, time and content of every file below `root`."""
    found = {}
    for path in sorted(root.rglob("*")):
        data = path.lstat()
        if stat.S_ISREG(data.st_mode):
            found[str(path.relative_to(root))] = (data.st_mode, data.st_mtime_ns, path.read_bytes())
    return found


@contextmanager
def only(main: Path, *expected: str) -> Iterator[None]:
    """Assert that nothing of the main checkout changes but files whose names begin so, which may come and go."""
    before = files(main)
    yield
    after = files(main)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert all(name.startswith(expected) for name in changed), changed
    gone = before.keys() - after.keys()
    assert all(name.startswith(".git/worktrees/") for name in gone), gone


def show(main: Path, what: str) -> bytes:
    return git(main, "show", what)


@pytest.mark.requirement("H22")
def test_a_work_tree_is_made_beside_the_checkout(registry: Registry, main: Path, place: Path) -> None:
    create(main, {"dirty": "not committed\n"})
    with only(main, ".git/worktrees/agent/", ".git/refs/heads/putback/agent"):
        bound = bind(registry, main)
    held = bound.binding
    assert (held.root.raw, held.branch) == (os.fsencode(place), "putback/agent")
    assert held.source is not None and held.source.raw == os.fsencode(main)
    assert held.common_dir.raw == os.fsencode(main / ".git") and held.git_dir != held.common_dir
    assert not bound.reattached and bound.filters == ()
    assert set(os.listdir(place)) == {".git", "committed"}
    assert git(place, "status", "--porcelain", "--branch") == b"## putback/agent\n"
    assert (place / "committed").stat().st_mode & 0o777 == 0o644
    assert (main / ".git/worktrees/agent/index").stat().st_mode & 0o777 == 0o644
    registry.attest(held)
    git(place, "commit", "-q", "--allow-empty", "-m", "works")


def test_place_branch_and_start_are_the_caller_s_to_choose(registry: Registry, main: Path, tmp_path: Path) -> None:
    git(main, "tag", "old")
    create(main, {"committed": "2\n"})
    git(main, "commit", "-qam", "second")
    (tmp_path / "alias").symlink_to(tmp_path)
    chosen = {"place": os.fsencode(tmp_path / "alias" / "here"), "branch": "topic/x", "start": "old"}
    held = bind(registry, main, **chosen).binding
    assert held.root.raw == os.fsencode(tmp_path / "here") and held.branch == "topic/x"
    assert (tmp_path / "here" / "committed").read_text() == "1\n"
    assert bind(registry, main, **chosen).reattached
    for other in ({"place": os.fsencode(tmp_path / "else")}, {"branch": "other"}):
        with pytest.raises(OverlappingClaim, match="another"):
            bind(registry, main, **other)


@pytest.mark.parametrize("where", ["sub/agent", ".git/agent", "../store/agent", ".", ".."])
def test_places_where_no_work_tree_may_be(registry: Registry, main: Path, where: str) -> None:
    registry.store.create()
    with only(main), pytest.raises(UsageError, match=r"lies inside|would hold"):
        bind(registry, main, place=os.fsencode(main / where))
    assert registry.states() == {}


@pytest.mark.parametrize("branch", ["-x", "a..b", "x.lock", "putback/salvage", "putback/salvage/x", "a b", ""])
def test_branches_that_cannot_be(registry: Registry, main: Path, branch: str) -> None:
    binding_id = "agent" if branch else "a..b"
    with only(main), pytest.raises(UsageError, match="branch"):
        registry.bind(main, binding_id, provider="git-worktree", branch=branch)


def test_what_no_work_tree_can_be_made_of(registry: Registry, main: Path, tmp_path: Path, place: Path) -> None:
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "-q")
    with pytest.raises(UsageError, match="no commit"):
        bind(registry, tmp_path / "new")
    with pytest.raises(UsageError, match="no commit"):
        bind(registry, main, start="--help")
    with pytest.raises(UnsuitableRoot):
        bind(registry, tmp_path)
    assert not place.exists() and registry.states() == {}


def test_what_stands_at_the_place_is_left_alone(
    registry: Registry, main: Path, tmp_path: Path, place: Path
) -> None:
    other = repository_at(tmp_path / "other")
    ways: dict[str, Callable[[], object]] = {
        "no work tree of this": lambda: create(place, {"mine": "precious\n"}),
        "no work tree": lambda: place.symlink_to(other),
        "no work tree of": lambda: git(other, "worktree", "add", "-q", "-b", "putback/agent", place),
        "is not on the branch": lambda: git(main, "worktree", "add", "-q", "-b", "another", place),
    }
    for words, make in ways.items():
        place.parent.mkdir(exist_ok=True)
        make()
        before = read_back(place) if not place.is_symlink() else None
        with pytest.raises(RefusedError, match=words):
            bind(registry, main)
        assert before is None or read_back(place) == before
        if place.is_symlink():
            place.unlink()
        else:
            shutil.rmtree(place)
            git(other, "worktree", "prune")
            git(main, "worktree", "prune")
    bind(registry, main)


def test_a_link_to_the_very_work_tree_is_not_followed(registry: Registry, main: Path, place: Path) -> None:
    git(main, "worktree", "add", "-q", "-b", "putback/agent", main.parent / "elsewhere")
    place.parent.mkdir()
    place.symlink_to(main.parent / "elsewhere")
    with pytest.raises(RefusedError, match="no work tree of this repository"):
        bind(registry, main)
    assert registry.states() == {}


@pytest.mark.requirement("H20")
def test_a_claim_in_the_way_is_seen_before_anything_is_made(registry: Registry, main: Path, place: Path) -> None:
    registry.bind(repository_at(place.parent), "area")
    with only(main), pytest.raises(OverlappingClaim, match="'area'"):
        bind(registry, main)
    assert not place.exists()


def test_a_branch_that_is_there_is_gone_on_with(registry: Registry, main: Path, place: Path) -> None:
    """As after a release: nothing moves it."""
    bind(registry, main)
    create(place, {"committed": "the agent's\n"})
    git(place, "commit", "-qam", "work")
    tip = git(main, "rev-parse", "putback/agent")
    released = registry.release("agent")
    assert released.removed and not released.salvage and not place.exists()
    assert git(main, "rev-parse", "putback/agent") == tip
    held = bind(registry, main).binding
    assert held.generation == 2 and (place / "committed").read_text() == "the agent's\n"
    registry.release("agent")
    with pytest.raises(RefusedError, match="is there already"):
        bind(registry, main, start="main")


def test_binding_again_finds_the_work_tree(registry: Registry, main: Path, place: Path) -> None:
    held = bind(registry, main).binding
    create(place, {"committed": "unsaved\n", "new": "\n"})
    status, said = in_child(lambda: bind(registry, main))
    assert status == 0, said
    again = bind(registry, main)
    assert again.reattached and again.binding == held
    same(read_back(place), normal({"committed": "unsaved\n", "new": "\n"}))
    registry.release("agent", disposition=Disposition.RETAIN)
    assert place.exists() and bind(registry, main).binding == held
    shutil.rmtree(place)
    with pytest.raises(NotOwned, match="is gone"):
        bind(registry, main)


@pytest.mark.requirement("H19")
def test_a_work_tree_that_git_does_not_know_is_not_attested(registry: Registry, main: Path, place: Path) -> None:
    held = bind(registry, main).binding
    (main / ".git/worktrees/agent/gitdir").write_text("/elsewhere/.git\n")
    with pytest.raises(NotOwned, match="linked work tree"):
        registry.attest(held)


def test_a_work_tree_in_a_sha256_repository(registry: Registry, tmp_path: Path) -> None:
    root = tmp_path / "main"
    root.mkdir()
    git(root, "init", "-q", "--object-format=sha256")
    create(root, {"committed": "1\n"})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    registry.attest(bind(registry, root).binding)
    create(tmp_path / "main.worktrees" / "agent", {"new": "1\n"})
    released = registry.release("agent", salvage=True)
    assert show(root, f"{released.salvage}:new") == b"1\n"
    git(root, "fsck", "--strict")


def test_a_binding_killed_at_every_seam(tmp_path: Path) -> None:
    dry = Registry(tmp_path / "dry")
    names = reached(lambda: bind(dry, repository_at(dry.base / "main")))
    assert names[:4] == ["worktree.added", "worktree.filled", "worktree.published", "turn.allocated"]
    for number, name in enumerate(names):
        registry = Registry(tmp_path / str(number))
        main = repository_at(registry.base / "main")
        with only(main, ".git/worktrees/agent/", ".git/refs/heads/putback/agent"):
            kill_at(number, lambda registry=registry, main=main: bind(registry, main))
            assert registry.states() == ({"agent": "active"} if name == "turn.claimed" else {})
            again = bind(registry, main)
        registry.attest(again.binding)
        place = registry.base / "main.worktrees" / "agent"
        assert git(place, "status", "--porcelain", "--ignored") == b""
        assert not [left for left in os.listdir(main / ".git/worktrees/agent") if "putback" in left]
        assert git(main, "branch", "--format=%(refname:short)").split() == [b"main", b"putback/agent"]


@pytest.mark.parametrize("seam", ["worktree.added", "worktree.filled", "worktree.published"])
@pytest.mark.parametrize("name", ["committed", "new"])
def test_a_half_made_work_tree_that_somebody_used_is_not_taken_over(
    registry: Registry, main: Path, place: Path, seam: str, name: str
) -> None:
    names = ["worktree.added", "worktree.filled", "worktree.published"]
    kill_at(names.index(seam), lambda: bind(registry, main))
    create(place, {name: "somebody's\n"})
    with pytest.raises(RefusedError, match=name):
        bind(registry, main)
    assert (place / name).read_text() == "somebody's\n" and registry.states() == {}


def with_alarms(main: Path, alarm: Path) -> None:
    """Every hook, a filter, a monitor and an include that is read in the new work tree alone ring the alarm."""
    hooks = main / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    program = alarm.with_name("program")
    for script in (
        program,
        *(hooks / name for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit")),
    ):
        script.write_text(ALARM.format(place=alarm))
        script.chmod(0o755)
    for driver in ("one", "Two.x"):
        for key in ("clean", "smudge"):
            git(main, "config", f"filter.{driver}.{key}", str(program))
        git(main, "config", f"filter.{driver}.required", "true")
    git(main, "config", "filter.three.process", str(program))
    for pattern in ("onbranch:putback/**", "gitdir:**/worktrees/**"):
        git(main, "config", f"includeIf.{pattern}.path", "hidden")
    (main / ".git" / "hidden").write_text(
        f'[filter "hidden"]\n\tsmudge = {program}\n\tclean = {program}\n\trequired\n'
        f"[core]\n\tfsmonitor = {program}\n"
    )
    git(main, "config", "core.fsmonitor", str(program))


ATTRIBUTES = "a filter=one\nb filter=Two.x\nc filter=three\nd filter=hidden\ne filter=unknown\n"


def test_no_hook_and_no_filter_runs_and_that_is_told(registry: Registry, main: Path, place: Path) -> None:
    create(main, {".gitattributes": ATTRIBUTES, **dict.fromkeys("abcde", "pointer\n")})
    git(main, "add", "-A")
    git(main, "commit", "-qm", "filtered")
    alarm = main.parent / "alarm"
    with_alarms(main, alarm)
    bound = bind(registry, main)
    assert bound.filters == ("Two.x", "hidden", "one", "three")
    assert (place / "a").read_text() == (place / "d").read_text() == "pointer\n"
    registry.attest(bound.binding)
    create(place, {"a": "changed\n", "d": "changed\n"})
    os.utime(place / "b", ns=(1, 1))
    with pytest.raises(RefusedError, match="2 files modified"):
        registry.release("agent")
    released = registry.release("agent", salvage=True)
    assert not alarm.exists(), "a program of the repository has run"
    assert show(main, f"{released.salvage}:a") == b"changed\n" == show(main, f"{released.salvage}:d")


def test_filters_that_no_file_asks_for_are_not_told(registry: Registry, main: Path) -> None:
    git(main, "config", "filter.lfs.smudge", "false")
    assert bind(registry, main).filters == ()


def conflict(place: Path) -> None:
    git(place, "checkout", "-q", "-b", "side")
    create(place, {"committed": "side\n"})
    git(place, "commit", "-qam", "side")
    git(place, "checkout", "-q", "putback/agent")
    create(place, {"committed": "ours\n"})
    git(place, "commit", "-qam", "ours")
    git(place, "merge", "side", check=False)


def rebase(place: Path) -> None:
    conflict(place)
    git(place, "merge", "--abort")
    git(place, "rebase", "side", check=False)


def merge_clean(place: Path) -> None:
    git(place, "checkout", "-q", "-b", "side")
    git(place, "commit", "-q", "--allow-empty", "-m", "side")
    git(place, "checkout", "-q", "putback/agent")
    git(place, "merge", "-q", "--no-ff", "--no-commit", "side")


def detached(place: Path) -> None:
    git(place, "checkout", "-q", "--detach")
    git(place, "commit", "-q", "--allow-empty", "-m", "nobody's")


def stage(place: Path) -> None:
    create(place, {"committed": "staged\n"})
    git(place, "add", "-A")


def stage_alone(place: Path) -> None:
    stage(place)
    create(place, {"committed": "1\n"})


def flag(place: Path, how: str) -> None:
    create(place, {"committed": "hidden change\n"})
    git(place, "update-index", how, "committed")


UNSAVED: dict[str, tuple[Callable[[Path], object], str]] = {
    "modified": (lambda place: create(place, {"committed": "2\n"}), "1 file modified"),
    "mode": (lambda place: (place / "committed").chmod(0o755), "1 file modified"),
    "deleted": (lambda place: (place / "committed").unlink(), "1 file modified"),
    "kind": (lambda place: ((place / "committed").unlink(), (place / "committed").symlink_to("x")), "modified"),
    "staged": (stage, "1 file staged"),
    "staged alone": (stage_alone, "1 file staged"),
    "removed": (lambda place: git(place, "rm", "-q", "--cached", "committed"), "1 file staged"),
    "announced": (lambda place: (create(place, {"n": ""}), git(place, "add", "-N", "n")), "1 file modified"),
    "untracked": (lambda place: create(place, {"a/new": "\n"}), "1 file untracked"),
    "conflict": (conflict, "1 file in conflict"),
    "merge": (merge_clean, "a merge in progress"),
    "rebase": (rebase, "a rebase in progress"),
    "bisection": (lambda place: git(place, "bisect", "start", "HEAD"), "a bisection in progress"),
    "detached": (detached, "commits that no branch has"),
    "own ref": (lambda place: git(place, "update-ref", "refs/worktree/x", "HEAD"), "refs that belong"),
    "assumed": (lambda place: flag(place, "--assume-unchanged"), "hidden from git"),
    "skipped": (lambda place: flag(place, "--skip-worktree"), "hidden from git"),
}


@pytest.mark.parametrize("way", UNSAVED)
def test_unsaved_work_is_not_removed_and_a_salvage_keeps_it(
    registry: Registry, main: Path, place: Path, way: str
) -> None:
    held = bind(registry, main).binding
    make, words = UNSAVED[way]
    make(place)
    tree = read_back(place)
    index = git(place, "ls-files", "-s", "-z")
    head = git(place, "rev-parse", "HEAD").decode().strip()
    with pytest.raises(RefusedError, match=words):
        registry.release("agent")
    assert read_back(place) == tree and registry.states() == {"agent": "active"}
    registry.attest(held)

    tips = set(git(main, "for-each-ref", "--format=%(objectname)", "refs/heads").split())
    with only(main, ".git/worktrees/agent/", ".git/refs/heads/putback/salvage/", ".git/objects/"):
        released = registry.release("agent", salvage=True)
    assert released.salvage == "putback/salvage/agent-1" and released.removed and not place.exists()
    assert registry.states() == {}
    author = git(main, "log", "-1", "--format=%an <%ae>|%cn", released.salvage)
    assert author == b"putback <putback@localhost>|putback\n"
    git(main, "merge-base", "--is-ancestor", head, released.salvage)
    assert tips <= set(git(main, "for-each-ref", "--format=%(objectname)", "refs/heads").split())
    held_blobs = git(main, "rev-list", "--objects", "--no-object-names", released.salvage).decode().split()
    staged = {line.split(b" ")[1].decode() for line in index.split(b"\0")[:-1]}
    assert staged <= set(held_blobs)
    out = main.parent / "out"
    git(main, "worktree", "add", "-q", "--detach", out, released.salvage)
    assert read_back(out) == tree
    git(main, "fsck", "--strict")


def test_a_salvage_keeps_odd_names_and_raw_bytes(registry: Registry, main: Path, place: Path) -> None:
    create(main, {".gitattributes": "*.txt text eol=crlf ident working-tree-encoding=UTF-16\n"})
    git(main, "add", "-A")
    git(main, "commit", "-qm", "attributes")
    bind(registry, main)
    odd = {
        b"new\nline": "1\n",
        b"not-utf8-\xff": "2\n",
        b'quo"te': File(b"#!/bin/sh\n", 0o755),
        b"-dash": "3\n",
        b":(glob)*": "4\n",
        b"link": Link("/etc/passwd"),
        b"d/mixed.txt": File(b"a\r\nb\n$Id$\n"),
    }
    create(place, odd)
    released = registry.release("agent", salvage=True)
    raw = git(main, "ls-tree", "-r", "-z", "--name-only", released.salvage).split(b"\0")[:-1]
    assert set(raw) == {*odd, b"committed", b".gitattributes"}
    assert show(main, f"{released.salvage}:d/mixed.txt") == b"a\r\nb\n$Id$\n"
    assert show(main, f"{released.salvage}:link") == b"/etc/passwd"


def test_a_tracked_file_behind_a_link_is_not_looked_for(registry: Registry, main: Path, place: Path) -> None:
    create(main, {"d/inner": "1\n"})
    git(main, "add", "-A")
    git(main, "commit", "-qm", "deep")
    bind(registry, main)
    (place / "d").rename(main.parent / "outside")
    (place / "d").symlink_to("../../outside")
    released = registry.release("agent", salvage=True)
    assert show(main, f"{released.salvage}:d") == b"../../outside"
    assert (main.parent / "outside" / "inner").read_text() == "1\n"


def test_a_repository_that_a_group_shares_stays_so(registry: Registry, main: Path, place: Path) -> None:
    git(main, "config", "core.sharedRepository", "group")
    before = set((main / ".git/objects").iterdir())
    bind(registry, main)
    assert (main / ".git/worktrees/agent/index").stat().st_mode & 0o777 == 0o664
    create(place, {"new": "kept\n"})
    registry.release("agent", salvage=True)
    made = set((main / ".git/objects").iterdir()) - before
    assert made and all(path.stat().st_mode & 0o2070 == 0o2070 for path in made)


def test_each_salvage_has_a_branch_of_its_own(registry: Registry, main: Path, place: Path) -> None:
    for number in (1, 2):
        bind(registry, main)
        create(place, {"new": f"{number}\n"})
        assert registry.release("agent", salvage=True).salvage == f"putback/salvage/agent-{number}"
    assert show(main, "putback/salvage/agent-1:new") == b"1\n"


IGNORED = {".gitignore": "*.log\nbuild/\n"}


def ignoring(registry: Registry, main: Path, place: Path) -> None:
    create(main, IGNORED)
    git(main, "add", "-A")
    git(main, "commit", "-qm", "ignore")
    bind(registry, main)
    create(place, {"x.log": "log\n", "build/deep/out": "out\n"})


def test_ignored_files_are_kept_by_the_caller_or_stay(registry: Registry, main: Path, place: Path) -> None:
    ignoring(registry, main, place)
    for salvage in (False, True):
        with pytest.raises(RefusedError, match="2 ignored files"):
            registry.release("agent", salvage=salvage)
    seen: list[list[str]] = []

    def keep(root: Path) -> str:
        where = registry.store.workspace(os.fsencode(root))
        with lock.hold(where.lock, "snapshot", False, 0, SILENT):
            seen.append(sorted(os.listdir(root)))
        return "5" * 64

    released = registry.release("agent", keep_ignored=keep)
    assert released.snapshot == "5" * 64 and released.removed and not released.salvage
    assert seen == [[".git", ".gitignore", "build", "committed", "x.log"]]


def test_a_snapshot_that_fails_keeps_the_tree(registry: Registry, main: Path, place: Path) -> None:
    ignoring(registry, main, place)

    def keep(root: Path) -> str:
        raise FailedError("too large")

    with pytest.raises(FailedError, match="too large"):
        registry.release("agent", keep_ignored=keep)
    assert (place / "x.log").exists() and registry.states() == {"agent": "active"}


def test_the_user_s_own_ignore_file_counts(registry: Registry, main: Path, place: Path, home: Path) -> None:
    create(home, {".config/git/ignore": "*.mine\n"})
    bind(registry, main)
    create(place, {"x.mine": "\n"})
    with pytest.raises(RefusedError, match=r"1 ignored files.*x\.mine"):
        registry.release("agent", salvage=True)


def change_file(place: Path) -> None:
    create(place, {"new": "changed again\n"})


def change_ignored(place: Path) -> None:
    create(place, {"x.log": "changed again\n"})


def add_file(place: Path) -> None:
    create(place, {"late": "\n"})


def stage_more(place: Path) -> None:
    git(place, "add", "new")


@pytest.mark.parametrize("change", [change_file, change_ignored, add_file, stage_more, detached])
@pytest.mark.parametrize("moment", ["snapshot", "worktree.releasing", "worktree.salvaged"])
def test_work_that_is_going_on_refuses(
    registry: Registry, main: Path, place: Path, change: Callable[[Path], None], moment: str
) -> None:
    ignoring(registry, main, place)
    create(place, {"new": "1\n"})

    def at(name: str) -> None:
        if name == moment:
            change(place)

    def keep(root: Path) -> str:
        at("snapshot")
        return "5" * 64

    seams.observe(at)
    try:
        # Between the first look and the snapshot a file may change that a salvage keeps as it is then.
        kept = moment == "snapshot" and change is change_file
        if kept:
            released = registry.release("agent", salvage=True, keep_ignored=keep)
            assert show(main, f"{released.salvage}:new") == b"changed again\n"
            return
        with pytest.raises(RefusedError, match="somebody is changing"):
            registry.release("agent", salvage=True, keep_ignored=keep)
    finally:
        seams.observe(None)
    assert (place / "new").exists() and registry.states() == {"agent": "active"}
    held = registry.claim("agent").binding
    registry.attest(held)
    if moment == "snapshot":
        assert [told.deed for told in bindings.events(registry.folder(held), held)] == [Deed.BOUND]
        assert git(main, "branch", "--list", "putback/salvage/*") == b""


def nest(place: Path) -> None:
    repository_at(place / "vendor" / "nested")


def modules(place: Path) -> None:
    (place.parent.parent / "main/.git/worktrees/agent/modules/x").mkdir(parents=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (nest, "another repository"),
        (modules, "another repository"),
        (lambda place: git(place, "worktree", "lock", "."), "is locked"),
    ],
)
def test_what_even_a_salvage_does_not_remove(
    registry: Registry, main: Path, place: Path, make, words: str
) -> None:
    bind(registry, main)
    make(place)
    with pytest.raises(RefusedError, match=words):
        registry.release("agent", salvage=True)
    assert place.exists() and registry.states() == {"agent": "active"}


def test_a_work_tree_that_is_gone_is_released(registry: Registry, main: Path, place: Path) -> None:
    bind(registry, main)
    git(main, "worktree", "remove", place)
    assert registry.release("agent").removed and registry.states() == {}


def test_another_directory_in_its_place_is_not_removed(registry: Registry, main: Path, place: Path) -> None:
    bind(registry, main)
    place.rename(place.with_name("moved"))
    shutil.copytree(place.with_name("moved"), place)
    with pytest.raises(NotOwned, match="another directory"):
        registry.release("agent")
    assert (place / "committed").exists() and registry.states() == {"agent": "active"}


def test_a_workspace_that_is_at_work_is_not_removed(registry: Registry, main: Path, place: Path) -> None:
    held = bind(registry, main).binding
    where = registry.store.workspace(held.root.raw)
    with lock.hold(where.lock, "run", False, 0, SILENT), pytest.raises(LockedError):
        registry.release("agent")
    assert place.exists() and registry.states() == {"agent": "active"}


def test_what_cannot_be_kept_is_not_removed(registry: Registry, main: Path, place: Path, monkeypatch) -> None:
    """git passes some names over and says so only in passing; and a branch may not be writable."""
    bind(registry, main)
    create(place, {"new": "1\n"})
    git(main, "branch", "putback/salvage")
    with pytest.raises(RefusedError, match="makes no branch"):
        registry.release("agent", salvage=True)
    git(main, "branch", "-D", "putback/salvage")
    monkeypatch.setattr(worktrees, "create_branch", lambda *_: None)
    with pytest.raises(PutbackError, match="does not hold"):
        registry.release("agent", salvage=True)
    assert (place / "new").exists() and registry.states() == {"agent": "active"}


def test_retained_and_archived_work_trees_stay(registry: Registry, main: Path, place: Path) -> None:
    bind(registry, main)
    create(place, {"new": "1\n"})
    for disposition in (Disposition.RETAIN, Disposition.ARCHIVE):
        released = registry.release("agent", disposition=disposition)
        assert not released.removed and (place / "new").exists()


def test_a_release_killed_at_every_seam(tmp_path: Path) -> None:
    """The work is in the tree or on a branch, and the same call again comes to its end, with one salvage."""

    def ready(base: Path) -> tuple[Registry, Path]:
        registry, main = Registry(base), repository_at(base / "main")
        bind(registry, main)
        create(base / "main.worktrees" / "agent", {"new": "work\n"})
        return registry, main

    def free(registry: Registry) -> Released:
        return registry.release("agent", salvage=True)

    dry, _ = ready(tmp_path / "dry")
    names = reached(lambda: free(dry))
    assert {"worktree.releasing", "worktree.salvaged", "worktree.removed", "turn.released"} <= set(names)
    for number, name in enumerate(names):
        registry, main = ready(tmp_path / str(number))
        kill_at(number, lambda registry=registry: free(registry))
        place = registry.base / "main.worktrees" / "agent"
        assert place.exists() == (name not in ("worktree.removed", "turn.released"))
        assert registry.states() == {"agent": "active"}
        held = registry.claim("agent").binding
        if place.exists():
            registry.attest(held)
        free(registry)
        assert registry.states() == {} and not place.exists()
        branches = git(main, "branch", "--format=%(refname:short)").decode().split()
        assert branches == ["main", "putback/agent", "putback/salvage/agent-1"]
        assert show(main, "putback/salvage/agent-1:new") == b"work\n"
        assert not registry.folder(held).scratch.exists()
        assert bindings.events(registry.folder(held), held)[-1].reason == "free: a test"
