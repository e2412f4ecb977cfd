"""Whole turns on every kind of repository: there, back, and nothing else of the user's is different."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crash.killing import SETTINGS
from putback.cli.main import run
from putback.errors import UnsafePath
from putback.records.turn import TurnState
from putback.turns.catalog import Turns
from putback.workspace import Workspace
from support.bound import PATHS, BoundWorld, git_dir, prepared, work, write
from support.hermetic import git, make_repository
from support.trees import create, read_back

Make = Callable[[BoundWorld], object]

MANY = 50_000


def sha256(world: BoundWorld) -> None:
    world.root.mkdir()
    git(world.root, "init", "-q", "--template=", "--object-format=sha256")
    prepared(world.root)


def index_of_version(number: int) -> Make:
    def make(world: BoundWorld) -> None:
        prepared(world.root)
        git(world.root, "config", "index.version", str(number))
        git(world.root, "update-index", "--index-version", str(number))

    return make


def linked(world: BoundWorld) -> None:
    make_repository(world.base / "main", {"d/staged": "a\n", "d/unstaged": "b\n", "both": "e\n", "other": "o\n"})
    git(world.base / "main", "worktree", "add", "-q", "-b", "linked", str(world.root))
    (world.root / "e").mkdir()
    create(world.root, {"d/untracked": "C\n", "deleted": "D\n", "d/staged": "A\n"})
    git(world.root, "add", "deleted", "d/staged")


def unborn(world: BoundWorld) -> None:
    create(
        world.root, {"d/staged": "A\n", "d/unstaged": "B\n", "d/untracked": "C\n", "deleted": "D\n", "other": "o"}
    )
    (world.root / "e").mkdir()
    git(world.root, "init", "-q", "--template=")
    git(world.root, "add", "d/staged", "d/unstaged", "deleted", "other")
    write(world.root, "both", b"untracked before\n")


def detached(world: BoundWorld) -> None:
    prepared(world.root)
    git(world.root, "checkout", "-q", "--detach")


def packed(world: BoundWorld) -> None:
    prepared(world.root)
    git(world.root, "gc", "-q", "--prune=now")
    git(world.root, "pack-refs", "--all")


def many_entries(world: BoundWorld) -> None:
    prepared(world.root)
    blob = git(world.root, "rev-parse", "HEAD:both").strip()
    names = (b"d/many%d/file%d" % (number % 100, number) for number in range(MANY))
    given = b"".join(b"100644 %b\t%b\n" % (blob, name) for name in names)
    git(world.root, "update-index", "--index-info", given=given)
    git(world.root, "update-index", "--assume-unchanged", "d/many7/file7")
    git(world.root, "update-index", "--skip-worktree", "d/many8/file8")


def shared_by_a_group(world: BoundWorld) -> None:
    prepared(world.root)
    git(world.root, "config", "core.sharedRepository", "group")


KINDS: dict[str, Make] = {
    "sha1": lambda world: prepared(world.root),
    "sha256": sha256,
    "linked": linked,
    "index-v3": index_of_version(3),
    "index-v4": index_of_version(4),
    "unborn": unborn,
    "detached": detached,
    "packed": packed,
    "shared": shared_by_a_group,
    "many": many_entries,
}


def listed(root: Path, *but: bytes) -> dict[bytes, bytes]:
    """Tag, mode, id and stage of each index entry, as stock git says, without those of some paths."""
    lines = git(root, "ls-files", "-s", "-v", "-z").split(b"\0")[:-1]
    found = {name: head for head, _, name in (line.partition(b"\t") for line in lines)}
    return {name: head for name, head in found.items() if name not in but}


def version(root: Path) -> bytes:
    return (git_dir(root) / "index").read_bytes()[4:8]


def there_and_back(world: BoundWorld, paths: tuple[bytes, ...], act: Callable[[], object]) -> None:
    """One turn around `act`, taken back; everything that is not of the turn stays."""
    world.begin("whole", paths)
    before, others, was = world.sides, listed(world.root, *paths), version(world.root)
    head = git(world.root, "symbolic-ref", "-q", "HEAD", check=False)
    act()
    assert world.sides != before
    world.seal()
    after = world.sides
    assert not world.apply().already
    assert world.sides == before and after != before
    assert listed(world.root, *paths) == others
    assert version(world.root) == was
    assert git(world.root, "symbolic-ref", "-q", "HEAD", check=False) == head
    assert world.state is TurnState.APPLIED and not world.ours()
    world.sound()


@pytest.mark.requirement("H1", "H6", "H7", "H8", "H10", "H27", "H28", "H31")
@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_turn(kind: str, tmp_path: Path) -> None:
    world = BoundWorld(tmp_path / "world")
    world.base.mkdir()
    KINDS[kind](world)
    world.bind()
    there_and_back(world, PATHS, lambda: work(world.root))
    world.next_turn_works()


ODD = (
    b"new\nline",
    b"-dash",
    b"not-utf8-\xff\xfe",
    b":(top)x",
    b":!x",
    b'quo"te\\back',
    b" space ",
    b"star*[a]?",
    b"tab\t",
    b"d/" + b"n" * 250,
)


@pytest.mark.requirement("H2", "H6", "H7")
@pytest.mark.parametrize("staged", [False, True], ids=["unstaged", "staged"])
def test_odd_names(staged: bool, tmp_path: Path) -> None:
    world = BoundWorld(tmp_path / "world")
    make_repository(world.root, {name: b"of " + name for name in ODD[:-1]} | {"d/kept": "k\n"})
    create(world.root, {name: b"untracked " + name for name in ODD[-1:]})
    world.bind()

    def act() -> None:
        for number, name in enumerate(ODD):
            full = os.path.join(os.fsencode(world.root), name)
            if number % 3 == 2:
                os.unlink(full)
            else:
                with open(full, "wb") as file:
                    file.write(b"turned")
        if staged:
            given = b"\0".join(ODD)
            git(
                world.root,
                "--literal-pathspecs",
                "add",
                "-A",
                "--pathspec-from-file=-",
                "--pathspec-file-nul",
                given=given,
            )

    there_and_back(world, ODD, act)


@pytest.mark.requirement("H11", "H12")
def test_names_that_are_no_paths(tmp_path: Path) -> None:
    world = BoundWorld(tmp_path / "world")
    make_repository(world.root)
    world.bind()
    for name in (
        b"/etc/passwd",
        b"../x",
        b"a/../b",
        b"./a",
        b"a//b",
        b"a/",
        b"",
        b".git/config",
        b"d/.GIT/x",
        b"a\0b",
    ):
        with pytest.raises(UnsafePath):
            world.begin("t", (name,))
    assert not world.listed


@pytest.mark.requirement("H14", "H28")
def test_no_program_of_the_repository_runs_and_bytes_are_raw(tmp_path: Path) -> None:
    """Filters, line ends, hooks and monitors that the user has set up: for their git, not for ours."""
    world = BoundWorld(tmp_path / "world")
    prepared(world.root)
    alarm, armed = tmp_path / "alarm", tmp_path / "armed"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\n[ -e {armed} ] && echo "$0 $*" >> {alarm}\ncat\n')
    program.chmod(0o755)
    for name in ("post-index-change", "pre-commit", "reference-transaction"):
        hook = world.root / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.symlink_to(program)
    (world.root / ".git/info").mkdir(exist_ok=True)
    (world.root / ".git/info/attributes").write_text("* filter=alarm diff=alarm\n*.ident ident\n")
    for key in ("filter.alarm.clean", "filter.alarm.smudge", "diff.alarm.textconv", "core.fsmonitor"):
        git(world.root, "config", key, str(program))
    git(world.root, "config", "filter.alarm.required", "true")
    git(world.root, "config", "core.autocrlf", "true")
    world.bind()

    def act() -> None:
        armed.unlink()
        work(world.root)
        write(world.root, "d/staged", b"with\r\nline\nends\r\n$Id$\n")
        git(world.root, "add", "d/staged")
        armed.touch()

    armed.touch()
    world.begin("raw")
    armed.unlink()
    before = world.sides
    armed.touch()
    act()
    world.seal()
    world.apply()
    armed.unlink()
    assert world.sides == before
    assert not alarm.exists(), alarm.read_text()
    armed.touch()
    write(world.root, "d/staged", b"again\r\n")
    world.begin("other way")
    (world.root / "d/staged").unlink()
    world.seal()
    world.apply()
    assert (world.root / "d/staged").read_bytes() == b"again\r\n"
    assert not alarm.exists(), alarm.read_text()


@pytest.mark.requirement("H1", "H14")
def test_the_callers_git_variables_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = BoundWorld(tmp_path / "world")
    prepared(world.root)
    decoy = make_repository(tmp_path / "decoy")
    untouched = {path: path.read_bytes() for path in decoy.rglob("*") if path.is_file()}
    for name, value in {
        "GIT_DIR": decoy / ".git",
        "GIT_WORK_TREE": decoy,
        "GIT_INDEX_FILE": tmp_path / "elsewhere",
        "GIT_OBJECT_DIRECTORY": tmp_path / "objects",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": tmp_path / "alternate",
        "GIT_NAMESPACE": "other",
        "GIT_PREFIX": "d/",
        "GIT_GLOB_PATHSPECS": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.sharedRepository",
        "GIT_CONFIG_VALUE_0": "world",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_TRACE": tmp_path / "trace",
    }.items():
        monkeypatch.setenv(name, str(value))
    world.bind()
    there_and_back(world, PATHS, lambda: work(world.root))
    assert {path: path.read_bytes() for path in decoy.rglob("*") if path.is_file()} == untouched
    assert not [name for name in ("elsewhere", "objects", "trace") if (tmp_path / name).exists()]


# --- a work tree of its own -------------------------------------------------------------------------------------


class Lines:
    """The command line, for one store; answers are what `--json` prints."""

    def __init__(self, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._store = store
        self._capsys = capsys

    def __call__(self, root: Path, *words: str, code: int = 0) -> Any:
        found = run(["-C", str(root), "--store", str(self._store), "--json", "turn", *words])
        said = self._capsys.readouterr()
        assert found == code, said
        return json.loads(said.out)


@pytest.mark.requirement("H1", "H22", "H39")
@pytest.mark.parametrize("unsaved", [False, True], ids=["clean", "unsaved"])
def test_a_turn_in_a_work_tree_of_its_own(
    unsaved: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = make_repository(
        tmp_path / "main", {"d/staged": "a\n", "d/unstaged": "b\n", "both": "e\n", "e/x": "x\n"}
    )
    write(main, "dirty", b"the user's own\n")
    turn = Lines(tmp_path / "store", capsys)
    index, tree = (main / ".git/index").read_bytes(), read_back(main)
    place = Path(turn(main, "bind", "-p", "git-worktree", "--id", "agent")["binding"]["root"]["path"])
    assert place == tmp_path / "main.worktrees" / "agent"

    paths = ["d/staged", "d/unstaged", "both", "e/created"]
    begun = turn(place, "begin", "--turn", "t", *paths)["turn"]["id"]
    before = read_back(place), listed(place)
    write(place, "d/staged", b"turned\n")
    write(place, "e/created", b"created\n")
    git(place, "add", "d/staged", "e/created")
    write(place, "both", b"turned\n")
    turn(place, "seal", begun)
    proposal = turn(place, "prepare", begun)["proposal"]
    refused = turn(main, "release", "-b", "agent", code=43)
    assert "unsaved work" in refused["error"]["message"]
    words = ["--proposal", proposal, "--actor", "me", "--reason", "why", "--yes"]
    assert turn(main, "apply", "-b", "agent", begun, *words)["done"]
    assert (read_back(place), listed(place)) == before
    assert turn(main, "apply", "-b", "agent", begun, *words)["result"]["already"]

    if unsaved:
        write(place, "loose", b"not saved\n")
        assert "unsaved work" in turn(main, "release", "-b", "agent", code=43)["error"]["message"]
        assert (place / "loose").read_bytes() == b"not saved\n"
        released = turn(main, "release", "-b", "agent", "--salvage")["released"]
        assert git(main, "show", f"{released['salvage']}:loose") == b"not saved\n"
    else:
        released = turn(main, "release", "-b", "agent")["released"]
        assert not released["salvage"]
    assert released["removed"] and not place.exists()
    assert git(main, "branch", "--list", "putback/agent").strip()
    assert (read_back(main), (main / ".git/index").read_bytes()) == (tree, index)
    assert b"agent" not in git(main, "worktree", "list")
    git(main, "fsck", "--strict")


@pytest.mark.requirement("H19", "H22")
def test_turns_in_two_work_trees_of_one_repository_do_not_meet(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "world/tree", {"d/unstaged": "b\n", "both": "e\n"})
    world = BoundWorld(tmp_path / "world")
    world.bind()
    bound = world.turns.bind(provider="git-worktree", binding_id="agent", owner="me").binding
    place = Path(os.fsdecode(bound.root.raw))
    theirs: Turns = Workspace.open(place, store=world.store, settings=SETTINGS).turns
    world.begin("mine", (b"both",))
    begun = theirs.begin(bound, theirs.next_turn(bound, "theirs"), [b"both"])
    write(main, "both", b"of the main one\n")
    write(place, "both", b"of the agent\n")
    git(place, "add", "both")
    theirs.seal(bound, begun.id)
    world.seal()
    plan = theirs.prepare(bound, begun.id)
    assert not theirs.apply(bound, plan, yes=True, actor="me", reason="why").already
    assert (place / "both").read_bytes() == b"e\n" and not git(place, "status", "--porcelain")
    assert (main / "both").read_bytes() == b"of the main one\n"
    assert not world.apply().already
    assert (main / "both").read_bytes() == b"e\n"
