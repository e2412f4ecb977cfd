"""A binding holds as long as claim, record, tree and git agree; one operation at a time has it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from crash.killing import kill_at, reached
from putback.errors import (
    IntegrityError,
    LockedError,
    NotOwned,
    OutOfOrder,
    OverlappingClaim,
    PutbackError,
    UnsuitableRoot,
    UsageError,
)
from putback.git import command
from putback.progress import SILENT
from putback.records import document
from putback.records.turn import Binding, Deed
from putback.turns import binding as bindings
from putback.turns import ownership, providers
from putback.turns.ownership import Disposition
from support.claims import Registry, repository_at
from support.hermetic import git, git_checksum, unmoved

pytestmark = pytest.mark.requirement("H19")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return repository_at(tmp_path / "mine")


def test_a_binding_says_what_was_bound(registry: Registry, mine: Path) -> None:
    with unmoved(mine):
        held = registry.bound(mine, "first")
        repository = registry.attest(held)
    assert repository.root == held.root.raw == os.fsencode(mine)
    assert held.root.identity == (mine.stat().st_dev, mine.stat().st_ino)
    assert held.git_dir == held.common_dir and held.git_dir.raw == os.fsencode(mine / ".git")
    assert (held.id, held.generation, held.owner, held.provider) == ("first", 1, "me", "exclusive-checkout")
    place = registry.folder(held)
    assert place.path.relative_to(registry.store.root).parts[2:] == ("turns", "first", "1")
    assert place.record.read_bytes() == document.encode(held) + b"\n"
    assert bindings.load(registry.store, held.root.raw, "first", 1) == held
    told = bindings.events(place, held)
    assert [(event.deed, event.actor, event.reason) for event in told] == [(Deed.BOUND, "a person", "a test")]


@pytest.mark.requirement("H22")
def test_a_shared_checkout_without_a_claim_refuses(registry: Registry, mine: Path) -> None:
    held = registry.bound(mine, "first")
    registry.release("first")
    with pytest.raises(NotOwned, match="nothing is bound") as caught:
        registry.attest(held)
    assert "putback turn bind" in (caught.value.hint or "")


def test_what_is_not_bound_is_not_released(registry: Registry) -> None:
    with pytest.raises(NotOwned):
        registry.release("first")
    assert not registry.store.root.exists()


@pytest.mark.requirement("H22")
@pytest.mark.parametrize("disposition", [Disposition.RETAIN, Disposition.ARCHIVE])
def test_what_is_at_rest_holds_no_turn(registry: Registry, mine: Path, disposition: Disposition) -> None:
    held = registry.bound(mine, "first")
    registry.release("first", disposition=disposition)
    with pytest.raises(NotOwned, match="not active"):
        registry.attest(held)


def move_away(mine: Path) -> None:
    mine.rename(mine.with_name("away"))


def replace(mine: Path) -> None:
    move_away(mine)
    repository_at(mine)


def link_in_place(mine: Path) -> None:
    move_away(mine)
    mine.symlink_to("away")


def file_in_place(mine: Path) -> None:
    move_away(mine)
    mine.write_text("")


def replace_git(mine: Path) -> None:
    (mine / ".git").rename(mine.parent / "old.git")
    shutil.copytree(mine.parent / "old.git", mine / ".git")


def point_elsewhere(mine: Path) -> None:
    other = repository_at(mine.parent / "other")
    (mine / ".git").rename(mine.parent / "old.git")
    (mine / ".git").write_text(f"gitdir: {other}/.git\n")


def without_git(mine: Path) -> None:
    (mine / ".git").rename(mine.parent / "old.git")


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "moved": (move_away, "is gone"),
    "replaced": (replace, "another directory was put in the place"),
    "a link": (link_in_place, "a symbolic link was put in the place"),
    "a file": (file_in_place, "is no directory any more"),
    "another .git": (replace_git, "the git directory of the bound tree"),
    "a .git that points elsewhere": (point_elsewhere, "the git directory of the bound tree"),
    "no .git": (without_git, "no git work tree any more"),
}


@pytest.mark.parametrize("way", CHANGES)
def test_another_tree_is_not_the_bound_one(registry: Registry, mine: Path, way: str) -> None:
    held = registry.bound(mine, "first")
    change, words = CHANGES[way]
    change(mine)
    with pytest.raises(NotOwned, match=words) as caught:
        registry.attest(held)
    assert "'first'" in (caught.value.hint or "")
    with pytest.raises(PutbackError):
        registry.bind(mine, "first")


def test_a_directory_above_that_became_a_link(registry: Registry, tmp_path: Path) -> None:
    held = registry.bound(repository_at(tmp_path / "area" / "mine"), "first")
    (tmp_path / "area").rename(tmp_path / "elsewhere")
    (tmp_path / "area").symlink_to("elsewhere")
    with pytest.raises(NotOwned, match="symbolic link"):
        registry.attest(held)


def test_the_repository_of_a_linked_work_tree_is_attested_too(
    registry: Registry, mine: Path, tmp_path: Path
) -> None:
    """The git directory is the same, and says that another repository has the objects and refs."""
    git(mine, "worktree", "add", "-q", "-b", "other", tmp_path / "linked")
    held = registry.bound(tmp_path / "linked", "first")
    registry.attest(held)
    other = repository_at(tmp_path / "other")
    git(other, "branch", "other")
    (mine / ".git" / "worktrees" / "linked" / "commondir").write_text(f"{other}/.git\n")
    with pytest.raises(NotOwned, match="the repository of the bound tree"):
        registry.attest(held)


def test_a_sha256_repository(registry: Registry, tmp_path: Path) -> None:
    root = tmp_path / "sha256"
    root.mkdir()
    git(root, "init", "-q", "--object-format=sha256")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    registry.attest(registry.bound(root, "first"))


def test_claim_record_and_caller_must_mean_one_binding(registry: Registry, mine: Path) -> None:
    held = registry.bound(mine, "first")
    other = msgspec.structs.replace(held, owner="another")
    with pytest.raises(NotOwned, match="bound anew"):
        registry.attest(other)
    place = registry.folder(held)
    place.record.write_bytes(document.encode(other) + b"\n")
    with pytest.raises(IntegrityError, match="differ"):
        registry.attest(held)
    place.record.unlink()
    with pytest.raises(IntegrityError, match="is gone"):
        registry.attest(held)


DAMAGE: dict[str, Callable[[Binding, bytes], bytes]] = {
    "empty": lambda held, data: b"",
    "torn": lambda held, data: data[:-1],
    "garbage": lambda held, data: b"garbage\n",
    "extra": lambda held, data: data.replace(b"{", b'{"a":1,', 1),
    "not canonical": lambda held, data: data.replace(b":", b" :", 1),
    "another generation": lambda held, data: _encoded(msgspec.structs.replace(held, generation=2)),
    "another root": lambda held, data: _encoded(msgspec.structs.replace(held, root=held.git_dir)),
}


def _encoded(held: Binding) -> bytes:
    return document.encode(held) + b"\n"


@pytest.mark.parametrize("way", DAMAGE)
def test_a_damaged_record_refuses(registry: Registry, mine: Path, way: str) -> None:
    held = registry.bound(mine, "first")
    place = registry.folder(held)
    place.record.write_bytes(DAMAGE[way](held, place.record.read_bytes()))
    with pytest.raises(IntegrityError, match="binding"):
        registry.attest(held)
    with pytest.raises(IntegrityError):
        bindings.load(registry.store, held.root.raw, "first", 1)


@pytest.mark.requirement("H20")
def test_a_peer_that_came_to_touch_the_tree_refuses(registry: Registry, mine: Path, tmp_path: Path) -> None:
    """Two trees that were apart when they were bound: then one was moved into the other."""
    held = registry.bound(mine, "first")
    peer = registry.bound(repository_at(tmp_path / "peer"), "second")
    (tmp_path / "peer").rename(mine / "peer")
    (tmp_path / "peer").symlink_to(mine / "peer")
    with pytest.raises(OverlappingClaim, match="'second'"):
        registry.attest(held)
    with pytest.raises(NotOwned):
        registry.attest(peer)


def test_the_provider_is_asked_and_must_be_the_same(registry: Registry, mine: Path, monkeypatch) -> None:
    held = registry.bound(mine, "first")
    by = providers.find("exclusive-checkout")

    def refuse(self: object, git: object, binding: Binding) -> None:
        raise NotOwned(f"not any more: {binding.id}")

    with monkeypatch.context() as patch:
        patch.setattr(type(by), "attest", refuse)
        with pytest.raises(NotOwned, match="not any more: first"):
            registry.attest(held)
    monkeypatch.setattr(type(by), "version", 2)
    with pytest.raises(NotOwned, match="another version"):
        registry.attest(held)


def test_binding_again_is_the_same_binding(registry: Registry, mine: Path) -> None:
    first = registry.bind(mine, "first")
    again = registry.bind(mine, "first")
    assert not first.reattached and again.reattached and again.binding == first.binding
    registry.release("first", disposition=Disposition.RETAIN)
    assert registry.states() == {"first": "retained"}
    third = registry.bind(mine, "first")
    assert third.binding == first.binding and registry.states() == {"first": "active"}
    registry.attest(third.binding)
    deeds = [
        (event.deed, event.reason) for event in bindings.events(registry.folder(first.binding), first.binding)
    ]
    assert deeds == [(Deed.BOUND, "a test"), (Deed.RELEASED, "retain: a test"), (Deed.BOUND, "a test")]


@pytest.mark.requirement("H20")
def test_an_id_is_its_owners_alone(registry: Registry, mine: Path, tmp_path: Path) -> None:
    registry.bind(mine, "first")
    other = repository_at(tmp_path / "other")
    for root, chosen in ((mine, {"owner": "another"}), (other, {}), (mine, {"provider": "git-worktree"})):
        with pytest.raises(OverlappingClaim):
            registry.bind(root, "first", **chosen)
    registry.release("first", disposition=Disposition.ARCHIVE)
    with pytest.raises(NotOwned, match="archived"):
        registry.bind(mine, "first")
    with pytest.raises(OutOfOrder, match="archived"):
        registry.release("first", disposition=Disposition.RETAIN)
    assert registry.states() == {"first": "archived"}


@pytest.mark.requirement("H3")
def test_each_new_binding_has_a_higher_generation(registry: Registry, mine: Path) -> None:
    for generation in (1, 2, 3):
        held = registry.bound(mine, "first")
        assert held.generation == generation
        registry.attest(held)
        registry.release("first")
    earlier = bindings.load(registry.store, os.fsencode(mine), "first", 1)
    assert earlier.generation == 1
    registry.bind(mine, "first")
    with pytest.raises(NotOwned, match="bound anew"):
        registry.attest(earlier)


@pytest.mark.parametrize("name", ["x", "01", "1 ", "-1"])
def test_generations_are_numbers(registry: Registry, mine: Path, name: str) -> None:
    held = registry.bound(mine, "first")
    registry.release("first")
    (registry.folder(held).path.parent / name).mkdir()
    with pytest.raises(IntegrityError, match="generation"):
        registry.bind(mine, "first")


def test_a_generation_exceeds_that_of_a_claim(registry: Registry, mine: Path) -> None:
    held = registry.bound(mine, "first")
    claim = msgspec.structs.replace(registry.claim("first"), binding=msgspec.structs.replace(held, generation=7))
    assert bindings.next_generation(registry.store, held.root.raw, "first", claim) == 8


@pytest.mark.requirement("H5")
def test_a_tree_with_an_open_turn_is_not_freed(registry: Registry, mine: Path) -> None:
    registry.bind(mine, "first")
    asked: list[str] = []

    def unsettled(binding: Binding) -> str:
        asked.append(binding.id)
        return "the turn t is begun"

    with pytest.raises(OutOfOrder, match="the turn t is begun"):
        registry.release("first", unsettled=unsettled)
    assert registry.states() == {"first": "active"} and asked == ["first"]
    registry.release("first", unsettled=unsettled, disposition=Disposition.RETAIN)
    registry.release("first", unsettled=lambda binding: None)
    assert registry.states() == {}


def test_a_vanished_tree_is_released(registry: Registry, mine: Path) -> None:
    registry.bind(mine, "first")
    shutil.rmtree(mine)
    released = registry.release("first")
    assert not released.removed and registry.states() == {}


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"actor": ""}, "actor"),
        ({"actor": "x" * 201}, "actor"),
        ({"reason": " "}, "reason"),
        ({"reason": "x" * 1901}, "reason"),
        ({"owner": "x" * 201}, "owner"),
        ({"provider": "unknown"}, "no such provider"),
        ({"branch": "x"}, "no branch to choose"),
    ],
)
def test_words_that_no_record_takes(registry: Registry, mine: Path, words: dict[str, str], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        registry.bind(mine, "first", **words)
    assert registry.claims.all() == []


@pytest.mark.parametrize("binding_id", ["", "A", "../x", ".x", "x/y", "x" * 65, "x\n", "gate/"])
def test_ids_that_are_no_names(registry: Registry, mine: Path, binding_id: str) -> None:
    with pytest.raises(UsageError, match="not an id"):
        registry.bind(mine, binding_id)
    with pytest.raises(UsageError, match="not an id"):
        registry.release(binding_id)


def test_what_cannot_be_bound(registry: Registry, mine: Path, tmp_path: Path, home: Path) -> None:
    (mine / "sub").mkdir()
    (tmp_path / "plain").mkdir()
    for root in (mine / "sub", tmp_path / "plain"):
        with pytest.raises(UnsuitableRoot, match="not the top of a git work tree"):
            registry.bind(root, "first")
    repository_at(home)
    with pytest.raises(UnsuitableRoot, match="the home directory"):
        registry.bind(home, "first")
    registry.base = mine / "inside"
    with pytest.raises(UsageError, match="the workspace itself"):
        Registry(mine / "x").bind(repository_at(mine / "x" / "store"), "first")


def test_names_that_are_given_where_none_is_chosen(registry: Registry, tmp_path: Path, monkeypatch) -> None:
    held = registry.bound(repository_at(tmp_path / "My Project.."), owner="")
    assert held.id.startswith("my-project-") and len(held.id) == len("my-project-") + 6
    assert held.owner == pwd.getpwuid(os.getuid()).pw_name
    assert bindings.is_id(ownership.default_id(b"/")) and bindings.is_id(ownership.default_id(b"/-\xff-"))
    assert ownership.default_id(b"/a/x") != ownership.default_id(b"/b/x")

    def missing(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", missing)
    assert ownership.default_owner() == f"uid-{os.getuid()}"


def hold_lease(registry: Registry, held: Binding) -> tuple[int, int]:
    """Another process that has the lease; its pid, and what is closed to end it."""
    waits, go = os.pipe()
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(go)
            with bindings.lease(registry.folder(held), "turn apply", wait_seconds=0, progress=SILENT):
                os.write(sink, b"x")
                os.read(waits, 1)
        finally:
            os._exit(0)
    os.close(waits)
    os.close(sink)
    assert os.read(source, 1) == b"x"
    os.close(source)
    return child, go


def test_a_lease_is_one_living_process_s(registry: Registry, mine: Path, tmp_path: Path) -> None:
    held = registry.bound(mine, "first")
    other = registry.bound(repository_at(tmp_path / "other"), "second")

    def take(binding: Binding) -> None:
        with bindings.lease(registry.folder(binding), "turn begin", wait_seconds=0, progress=SILENT):
            pass

    child, go = hold_lease(registry, held)
    try:
        with pytest.raises(LockedError, match=f"pid {child}, turn apply"):
            take(held)
        take(other)
        with pytest.raises(LockedError):
            registry.release("first")
        assert registry.states()["first"] == "active"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        take(held)
    finally:
        os.close(go)


@pytest.mark.requirement("H32")
def test_the_log_of_a_binding(registry: Registry, mine: Path) -> None:
    held = registry.bound(mine, "first")
    place = registry.folder(held)
    told = bindings.event(held, Deed.RESOLVED, "someone", "because")
    bindings.append_event(place, held, told)
    assert bindings.events(place, held)[1:] == [told]

    whole = place.events.read_bytes()
    place.events.write_bytes(whole + b'{"torn')
    assert bindings.events(place, held)[1:] == [told]
    bindings.append_event(place, held, told)
    assert bindings.events(place, held)[1:] == [told, told]
    assert place.events.read_bytes().startswith(whole)

    with pytest.raises(IntegrityError, match="another binding"):
        bindings.append_event(place, held, msgspec.structs.replace(told, binding="0" * 64))
    for line in (b"garbage", b"", document.encode(msgspec.structs.replace(told, binding="0" * 64))):
        place.events.write_bytes(whole + line + b"\n")
        with pytest.raises(IntegrityError, match="event 3"):
            bindings.events(place, held)
        with pytest.raises(IntegrityError, match="event 3"):
            bindings.append_event(place, held, told)
        with pytest.raises(IntegrityError, match="event 3"):
            registry.release("first")
        assert place.events.read_bytes() == whole + line + b"\n"
    assert registry.states() == {"first": "active"}


@pytest.mark.slow
def test_a_binding_killed_at_every_seam(tmp_path: Path) -> None:
    """Nothing is claimed, or all is there and holds; and the same call again comes to its end."""
    dry = Registry(tmp_path / "dry")
    names = reached(lambda: dry.bind(repository_at(dry.base / "mine"), "first"))
    assert names == ["turn.allocated", "turn.bound", "turn.recorded", "turn.claimed"]
    for number, name in enumerate(names):
        registry = Registry(tmp_path / str(number))
        mine = repository_at(registry.base / "mine")
        before = git_checksum(mine)
        kill_at(number, lambda registry=registry, mine=mine: registry.bind(mine, "first"))
        assert registry.states() == ({"first": "active"} if name == "turn.claimed" else {})
        again = registry.bind(mine, "first")
        assert again.reattached == (name == "turn.claimed")
        assert again.binding.generation == (2 if name in ("turn.bound", "turn.recorded") else 1)
        registry.attest(again.binding)
        assert git_checksum(mine) == before


@pytest.mark.slow
@pytest.mark.parametrize("disposition", list(Disposition))
def test_a_release_killed_at_every_seam(tmp_path: Path, disposition: Disposition) -> None:
    def bound(base: Path) -> Registry:
        registry = Registry(base)
        registry.bind(repository_at(base / "mine"), "first")
        return registry

    dry = bound(tmp_path / "dry")
    names = reached(lambda: dry.release("first", disposition=disposition))
    assert names[0] == "turn.releasing" and (disposition is not Disposition.FREE or "turn.released" in names)
    for number in range(len(names)):
        registry = bound(tmp_path / str(number))
        kill_at(number, lambda registry=registry: registry.release("first", disposition=disposition))
        registry.attest(registry.claim("first").binding)
        registry.release("first", disposition=disposition)
        assert registry.states().get("first", "free").startswith(str(disposition))


def test_git_is_asked_about_the_tree_and_nowhere_else(registry: Registry, mine: Path, monkeypatch) -> None:
    """The caller's environment does not name the repository."""
    held = registry.bound(mine, "first")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert bindings.attest(registry.claims, held, command.find()).git_dir == os.fsencode(mine / ".git")
