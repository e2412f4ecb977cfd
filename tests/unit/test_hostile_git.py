"""Nothing that the user's git is configured to run is run, and nothing in the environment leads git astray."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from putback.errors import AmbiguousId, MalformedId, UnknownId
from putback.workspace import Workspace
from support.hermetic import OpenWorkspace, git, git_checksum, make_repository, unmoved
from support.trees import Dir, File, Link, create, destroy, read_back, same

HOOKS = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "proc-receive",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "sendemail-validate",
    "fsmonitor-watchman",
    "post-index-change",
    "p4-pre-submit",
]

TREE = {
    "committed": "1\n",
    "tool": File(b"#!/bin/sh\n", 0o755),
    "image.bin": b"\0\1\2",
    "doc.txt": "text\n",
    "d/x": "1\n",
    "d/empty": Dir(0o700),
    "link": Link("d/x"),
}


class Trap:
    """Programs that leave a file behind when they are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    @property
    def fired(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.fired"))

    def program(self, name: str, place: Path | None = None) -> str:
        path = place or self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n: > '{self.folder}/{name}.fired'\ncat\nexit 0\n")
        path.chmod(0o755)
        return str(path)

    def hooks(self, name: str, folder: Path) -> str:
        for hook in HOOKS:
            self.program(f"{name}-{hook}", folder / hook)
        return str(folder)

    def config(self, name: str) -> str:
        """A configuration that runs a program wherever git can be told to."""

        def run(what: str) -> str:
            return self.program(f"{name}-{what}")

        templates = self.folder / f"{name}-templates"
        self.hooks(f"{name}-template", templates / "hooks")
        return f"""
[core]
    hooksPath = {self.hooks(name, self.folder / f"{name}-hooks")}
    fsmonitor = {run("fsmonitor")}
    fsmonitorHookVersion = 2
    pager = {run("pager")}
    editor = {run("editor")}
    sshCommand = {run("ssh")}
    askPass = {run("askpass")}
    gitProxy = {run("proxy")}
    alternateRefsCommand = {run("alternates")}
    attributesFile = {self._attributes()}
    untrackedCache = true
    splitIndex = true
    autocrlf = true
[pager]
    diff = {run("pager-diff")}
    log = {run("pager-log")}
[sequence]
    editor = {run("sequence")}
[diff]
    external = {run("diff-external")}
[diff "trap"]
    command = {run("diff-command")}
    textconv = {run("textconv")}
[merge "trap"]
    driver = {run("merge")}
[filter "trap"]
    clean = {run("clean")}
    smudge = {run("smudge")}
    process = {run("process")}
    required = true
[gpg]
    program = {run("gpg")}
[commit]
    gpgSign = true
[tag]
    gpgSign = true
[user]
    signingKey = 0
[credential]
    helper = {run("credential")}
[init]
    templateDir = {templates}
[interactive]
    diffFilter = {run("diff-filter")}
[uploadpack]
    packObjectsHook = {run("pack-objects")}
[trace2]
    normalTarget = {self.folder}/{name}-trace.fired
    eventTarget = {self.folder}/{name}-event.fired
[alias]
    diff-files = !{run("alias-diff-files")}
    update-index = !{run("alias-update-index")}
    ls-files = !{run("alias-ls-files")}
[gc]
    auto = 1
[maintenance]
    auto = true
    strategy = incremental
[extensions]
    partialClone = origin
[remote "origin"]
    url = ext::{run("remote")}
    promisor = true
    uploadpack = {run("upload-pack")}
[url "ext::{run("instead")}"]
    insteadOf = https://
[protocol]
    allow = always
[log]
    showSignature = true
"""

    def _attributes(self) -> Path:
        path = self.folder / "attributes"
        path.write_text("* filter=trap diff=trap merge=trap ident text eol=crlf\n")
        return path


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "trap")


def everything(ws: Workspace, root: Path) -> None:
    """Each operation once, with something to do."""
    before = read_back(root)
    first = ws.snapshot("first")
    create(root, {"committed": "2\n", "image.bin": b"\0\2\2", "doc.txt": "other\n", "new": "n"})
    ws.diff(first.id)
    ws.snapshot("second")
    ws.diff("@2..@1")
    ws.restore(first.id, dry_run=True)
    destroy(root)
    ws.restore(first.id, exact=True)
    same(read_back(root), before)
    ws.undo()
    same(read_back(root), {})
    ws.redo()
    same(read_back(root), before)
    for entry in ws.list():
        ws.show(entry.id)
        ws.files(entry.id)
    ws.interrupted()
    assert ws.diff(first.id).changes == []
    assert (ws.files(first.id).keys()) == {
        path for path, entry in before.items() if not isinstance(entry, Dir) or path == b"d/empty"
    }


@pytest.mark.requirement("K5", "K6", "K10")
@pytest.mark.parametrize("where", ["repository", "global", "xdg", "included"])
def test_no_program_of_the_users_configuration_runs(
    where: str, tree: Path, home: Path, trap: Trap, open_workspace: OpenWorkspace
) -> None:
    make_repository(tree, TREE | {".gitattributes": "* filter=trap diff=trap merge=trap\n"})
    text = trap.config(where)
    if where == "repository":
        # The programs, not the settings that make git itself refuse the repository.
        own = text.replace("partialClone = origin", "").replace("splitIndex = true", "")
        with (tree / ".git" / "config").open("a") as file:
            file.write(own)
        trap.hooks("planted", tree / ".git" / "hooks")
        create(tree, {".git/info/attributes": "* filter=trap diff=trap\n"})
    elif where == "xdg":
        create(home, {".config/git/config": text})
    elif where == "included":
        create(home, {".gitconfig": f"[include]\n\tpath = {home}/more\n", "more": text})
    else:
        create(home, {".gitconfig": text})
    ws = open_workspace(tree)
    with unmoved(tree):
        everything(ws, tree)
    assert trap.fired == []


@pytest.mark.requirement("K6")
def test_the_trap_works(tree: Path, home: Path, trap: Trap) -> None:
    make_repository(tree, TREE)
    create(home, {".gitconfig": trap.config("global")})
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    for arguments in (["status"], ["diff"], ["add", "-A"], ["commit", "-qm", "x", "--allow-empty"]):
        (tree / "committed").write_text(f"{arguments}\n")
        subprocess.run(["git", *arguments], cwd=tree, env=environment, capture_output=True, check=False)
    assert {"global-fsmonitor.fired", "global-process.fired", "global-trace.fired"} <= set(trap.fired)


@pytest.mark.requirement("K5", "K6")
def test_no_hook_of_a_nested_repository_or_submodule_runs(
    tree: Path, trap: Trap, tmp_path: Path, open_workspace: OpenWorkspace
) -> None:
    make_repository(tree, {})
    make_repository(tree / "lib", TREE)
    other = make_repository(tmp_path / "other", {"x": "1"})
    git(tree, "submodule", "--quiet", "add", str(other), "sub")
    for number, place in enumerate((tree / "lib" / ".git", tree / ".git" / "modules" / "sub")):
        trap.hooks(f"nested{number}", place / "hooks")
        with (place / "config").open("a") as file:
            file.write(trap.config(f"nested{number}").replace("partialClone = origin", ""))
    ws = open_workspace(tree)
    with unmoved(tree):
        taken = ws.snapshot()
        create(tree, {"lib/committed": "2\n", "sub/x": "2"})
        ws.diff("@1")
        ws.restore(taken.id)
        ws.undo()
    assert trap.fired == []


MISLEADING = {
    "GIT_DIR": "{elsewhere}/.git",
    "GIT_WORK_TREE": "{elsewhere}",
    "GIT_INDEX_FILE": "{elsewhere}/.git/index",
    "GIT_OBJECT_DIRECTORY": "{elsewhere}/.git/objects",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "{elsewhere}/.git/objects",
    "GIT_COMMON_DIR": "{elsewhere}/.git",
    "GIT_NAMESPACE": "other",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1",
    "GIT_PREFIX": "sub/",
    "GIT_DEFAULT_HASH": "sha1",
    "GIT_QUARANTINE_PATH": "{elsewhere}",
    "GIT_SHALLOW_FILE": "{elsewhere}/shallow",
    "GIT_GRAFT_FILE": "{elsewhere}/grafts",
    "GIT_REPLACE_REF_BASE": "refs/other",
    "GIT_IMPLICIT_WORK_TREE": "0",
    "GIT_CONFIG": "{elsewhere}/.git/config",
    "GIT_CONFIG_GLOBAL": "{elsewhere}/hostile",
    "GIT_CONFIG_SYSTEM": "{elsewhere}/hostile",
    "GIT_CONFIG_PARAMETERS": "'core.excludesFile={elsewhere}/all'",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.excludesFile",
    "GIT_CONFIG_VALUE_0": "{elsewhere}/all",
    "GIT_ATTR_SOURCE": "HEAD",
    "GIT_GLOB_PATHSPECS": "1",
    "GIT_NOGLOB_PATHSPECS": "0",
    "GIT_ICASE_PATHSPECS": "1",
    "GIT_LITERAL_PATHSPECS": "0",
    "GIT_INDEX_VERSION": "4",
    "GIT_FORCE_UNTRACKED_CACHE": "1",
    "GIT_TEST_SPLIT_INDEX": "1",
    "GIT_TEST_FSMONITOR": "{elsewhere}/run",
    "GIT_EXTERNAL_DIFF": "{elsewhere}/run",
    "GIT_DIFF_OPTS": "--unified=0",
    "GIT_PAGER": "{elsewhere}/run",
    "GIT_EDITOR": "{elsewhere}/run",
    "GIT_SEQUENCE_EDITOR": "{elsewhere}/run",
    "GIT_ASKPASS": "{elsewhere}/run",
    "GIT_SSH": "{elsewhere}/run",
    "GIT_SSH_COMMAND": "{elsewhere}/run",
    "GIT_PROXY_COMMAND": "{elsewhere}/run",
    "GIT_EXEC_PATH": "{elsewhere}",
    "GIT_TEMPLATE_DIR": "{elsewhere}",
    "GIT_TRACE": "{elsewhere}/trace",
    "GIT_TRACE2_EVENT": "{elsewhere}/trace",
    "GIT_TRACE_SETUP": "{elsewhere}/trace",
    "GIT_AUTHOR_DATE": "nonsense",
    "GIT_COMMITTER_DATE": "nonsense",
    "GIT_AUTHOR_NAME": "",
    "PAGER": "{elsewhere}/run",
    "EDITOR": "{elsewhere}/run",
    "LC_ALL": "de_DE.UTF-8",
    "LANGUAGE": "de",
    "TZ": "Asia/Tokyo",
}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    place = make_repository(tmp_path / "elsewhere", {"theirs": "t", "all": "*\n", "shallow": "", "grafts": ""})
    create(place, {"hostile": f"[core]\n\texcludesFile = {place}/all\n\tautocrlf = true\n"})
    create(place, {"run": File(b'#!/bin/sh\n: > "$(dirname "$0")/fired"\ncat\n', 0o755)})
    return place


def elsewhere_is_untouched(place: Path, before: tuple[object, str]) -> None:
    assert (read_back(place), git_checksum(place)) == before, "something led git astray"


@pytest.mark.requirement("K5", "K6", "K10")
@pytest.mark.parametrize("chosen", ["all", "half-set", "with the repository's own values"])
def test_no_variable_of_the_environment_leads_astray(
    chosen: str, tree: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, open_workspace: OpenWorkspace
) -> None:
    make_repository(tree, TREE)
    before = (read_back(elsewhere), git_checksum(elsewhere))
    target = tree if chosen.startswith("with") else elsewhere
    for name, value in MISLEADING.items():
        monkeypatch.setenv(name, value.format(elsewhere=elsewhere if "/.git" not in value else target))
    if chosen == "half-set":
        monkeypatch.setenv("GIT_CONFIG_COUNT", "3")
        monkeypatch.delenv("GIT_CONFIG_VALUE_0")
        monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'unterminated")
    ws = open_workspace(tree)
    with unmoved(tree):
        everything(ws, tree)
    elsewhere_is_untouched(elsewhere, before)


@pytest.mark.slow
@pytest.mark.requirement("K5", "K6")
def test_no_single_variable_leads_astray(
    tree: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, open_workspace: OpenWorkspace
) -> None:
    make_repository(tree, TREE)
    before, here = (read_back(elsewhere), git_checksum(elsewhere)), read_back(tree)
    ws = open_workspace(tree)
    ws.snapshot()
    expected = ws.files("@1")
    with unmoved(tree):
        for name, value in MISLEADING.items():
            with monkeypatch.context() as patch:
                patch.setenv(name, value.format(elsewhere=elsewhere))
                (tree / "committed").write_text(name)
                ws.restore("@1" if ws.list()[0].kind == "snapshot" else "@2")
                same(read_back(tree), here)
                ws.snapshot(name)
                assert ws.files("@1") == expected, name
    elsewhere_is_untouched(elsewhere, before)


@pytest.mark.requirement("K6")
def test_the_private_store_shares_nothing_with_the_users_repository(
    repository: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    git(repository, "config", "user.name", "Somebody")
    git(repository, "config", "user.email", "somebody@example.com")
    ws = open_workspace(repository)
    taken = ws.snapshot("said")
    private = store / "objects.git"
    assert not (private / "objects" / "info" / "alternates").exists()
    assert not list((private / "hooks").glob("*")) if (private / "hooks").exists() else True
    commit = git(repository, f"--git-dir={private}", "cat-file", "commit", taken.id)
    assert b"Somebody" not in commit and b"parent" not in commit and b"gpgsig" not in commit
    for line in (private / "config").read_bytes().splitlines():
        assert str(repository).encode() not in line


@pytest.mark.requirement("K2", "K6")
def test_stock_git_reads_and_checks_the_store(tree: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, TREE)
    ws = open_workspace(tree)
    first = ws.snapshot()
    create(tree, {"committed": "2\n", "new": "n"})
    ws.restore(first.id, exact=True)
    ws.undo()
    ws.snapshot(paths=["d"])
    for number in range(100):
        create(tree, {f"many/{number}": f"{number}"})
    ws.snapshot()
    private = f"--git-dir={store / 'objects.git'}"
    assert git(tree, private, "show", f"{first.id}:files/committed") == b"1\n"
    assert git(tree, private, "show", f"{first.id}:files/link") == b"d/x"
    assert b"putback/capture/v1" in git(tree, private, "show", f"{first.id}:capture.json")
    assert git(tree, private, "ls-tree", "-r", "--name-only", "@:files", check=False) == b""
    checked = git(tree, private, "fsck", "--full", "--strict", "--no-dangling", "--no-progress")
    assert checked == b""
    refs = git(tree, private, "for-each-ref", "--format=%(refname)").decode().split()
    assert f"refs/putback/{ws.paths.name}/{first.id}" in refs and len(refs) == 7


@pytest.mark.requirement("K6")
def test_names_that_git_distrusts_do_not_spoil_the_store(
    tree: Path, store: Path, open_workspace: OpenWorkspace
) -> None:
    create(tree, {"git~1": "1", ".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = u\n', "a\\b": "1"})
    open_workspace(tree).snapshot()
    private = f"--git-dir={store / 'objects.git'}"
    checked = git(tree, private, "-c", "fsck.hasDotgit=ignore", "fsck", "--full", "--strict", "--no-progress")
    assert checked == b""


def test_the_store_is_for_its_owner_alone(tree: Path, store: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, TREE)
    os.umask(0)
    ws = open_workspace(tree)
    ws.snapshot()
    create(tree, {"committed": "2"})
    ws.restore("@1")
    for path in (store, *store.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.requirement("K7")
def test_whole_ids_prefixes_and_numbers_name_a_snapshot(tree: Path, open_workspace: OpenWorkspace) -> None:
    create(tree, {"a": "1"})
    ws = open_workspace(tree)
    first, second = ws.snapshot("first"), ws.snapshot("second")
    for asked in (first.id, first.entry.short_id, first.id[:7], "@2"):
        entry = ws.show(asked).entry
        assert entry is not None and entry.message == "first"
        assert ws.restore(asked, dry_run=True).plan.steps == ()
        assert ws.diff(asked).changes == []
    assert ws.files("@1") == ws.files(second.id)


BAD_IDS = [
    "",
    "-h",
    "--help",
    "--output=/tmp/x",
    "HEAD",
    "master",
    "refs/putback/x",
    "abc",
    "@",
    "@0",
    "@-1",
    "@1~1",
    "a" * 65,
    "A" * 64,
    "zzzzzzz",
    " @1",
    "@1\n",
    "1234567^{tree}",
    "1234567:files",
    "..",
    "@1..",
    "..@1",
]


@pytest.mark.requirement("K7")
@pytest.mark.parametrize("asked", BAD_IDS)
def test_a_malformed_id_is_an_error_of_its_own(asked: str, tree: Path, open_workspace: OpenWorkspace) -> None:
    ws = open_workspace(tree)
    ws.snapshot()
    for act in (ws.show, ws.files, ws.diff, ws.restore):
        with pytest.raises(MalformedId):
            act(asked)  # type: ignore[operator]


@pytest.mark.requirement("K7")
def test_an_unknown_and_an_ambiguous_id_are_two_clear_errors(
    tree: Path, monkeypatch: pytest.MonkeyPatch, open_workspace: OpenWorkspace
) -> None:
    ws = open_workspace(tree)
    with pytest.raises(UnknownId, match="nothing was ever captured"):
        ws.restore("@1")
    taken = ws.snapshot()
    unknown = "".join("1" if digit == "0" else "0" for digit in taken.id)
    for asked in (unknown, unknown[:12], "@2", "@999999999"):
        with pytest.raises(UnknownId, match=asked[:7]):
            ws.restore(asked)
    twin = taken.id[:20] + unknown[20:]
    monkeypatch.setattr("putback.git.refs.anchored", lambda *_: [taken.id, twin])
    with pytest.raises(AmbiguousId, match=taken.id[:12]):
        ws.show(taken.id[:12])
    assert ws.show(taken.id).entry is not None


@pytest.mark.requirement("K7", "K8")
def test_a_snapshot_of_another_workspace_is_unknown(tmp_path: Path, open_workspace: OpenWorkspace) -> None:
    create(tmp_path, {"one/a": "1", "two/a": "2"})
    theirs = open_workspace(tmp_path / "one").snapshot()
    ws = open_workspace(tmp_path / "two")
    assert ws.list() == []
    ws.snapshot()
    with pytest.raises(UnknownId):
        ws.restore(theirs.id)
    assert len(ws.list()) == 1
