"""A world of its own for each test: home, environment, umask, store, workspace, and the user's git beside it."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from putback.config import AgentSettings, CaptureSettings, RetentionSettings, RunSettings, Settings, StoreSettings
from putback.workspace import Workspace
from support.trees import Literal, create

OpenWorkspace = Callable[..., Workspace]


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home directory; no GIT_*, XDG_* or PUTBACK_* variable; umask 022; Ctrl-C as Python has it."""
    place = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("GIT_", "XDG_", "PUTBACK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(place))
    before, interrupt = os.umask(0o022), signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield place
    os.umask(before)
    # A command line that is called within the process takes it over.
    signal.signal(signal.SIGINT, interrupt)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the store of `open_workspace` is, or will be."""
    return tmp_path / "store"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An empty directory to be the workspace."""
    root = tmp_path / "tree"
    root.mkdir()
    return root


@pytest.fixture
def repository(tree: Path) -> Path:
    """The workspace as the user's git repository, with one commit of `committed`."""
    return make_repository(tree)


@pytest.fixture
def open_workspace(store: Path) -> OpenWorkspace:
    """Opens a workspace: `open_workspace(root, max_file_bytes=10, exclude=("*.log",))`."""

    def opened(root: Path, *, store: Path = store, **chosen: Any) -> Workspace:
        return Workspace.open(root, store=store, settings=settings(**chosen))

    return opened


def settings(**chosen: Any) -> Settings:
    """Settings by the bare names of their fields; the free-disk floor is 0 unless chosen."""
    chosen = {"min_free_bytes": 0, **chosen}
    tables: list[Any] = []
    for kind in (CaptureSettings, StoreSettings, RetentionSettings, RunSettings, AgentSettings):
        names = chosen.keys() & set(kind.__struct_fields__)
        tables.append(kind(**{name: chosen.pop(name) for name in names}))
    assert not chosen, f"no such settings: {chosen}"
    return Settings(*tables)


def git(root: Path, *arguments: str | bytes, given: bytes = b"", check: bool = True) -> bytes:
    """Run git as the user in one of their repositories, untouched by the home directory of the test."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
        "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
        "LC_ALL": "C",
    }
    settled = ["-c", "user.name=user", "-c", "user.email=user@example.com", "-c", "init.defaultBranch=main"]
    settled += ["-c", "protocol.file.allow=always", "-c", "advice.detachedHead=false"]
    done = subprocess.run(
        ["git", *settled, *arguments], cwd=root, env=environment, input=given, capture_output=True, check=False
    )
    assert not check or done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def make_repository(root: Path, literal: Literal | None = None) -> Path:
    """A repository at `root` with one commit of the tree, or of one file `committed`."""
    create(root, {"committed": "1\n"} if literal is None else literal)
    git(root, "init", "-q", "--template=")
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    return root


def git_checksum(*roots: Path) -> str:
    """A digest of every file below every `.git` below the roots: name, mode, time and content or target."""
    digest = hashlib.sha256()
    for root in roots:
        for line in _git_lines(os.fsencode(root), inside=root.name == ".git"):
            digest.update(line + b"\0")
    return digest.hexdigest()


def _git_lines(directory: bytes, *, inside: bool) -> Iterator[bytes]:
    for name in sorted(os.listdir(directory)):
        full = os.path.join(directory, name)
        found = os.lstat(full)
        here = inside or name == b".git"
        if here:
            yield full + b" %o %d" % (found.st_mode, found.st_mtime_ns)
            yield _content(full, found.st_mode)
        if stat.S_ISDIR(found.st_mode):
            yield from _git_lines(full, inside=here)


def _content(full: bytes, mode: int) -> bytes:
    if stat.S_ISLNK(mode):
        return os.readlink(full)
    if not stat.S_ISREG(mode):
        return b""
    with open(full, "rb") as file:
        return file.read()


@contextmanager
def unmoved(*roots: Path) -> Iterator[None]:
    """Assert that nothing below any `.git` below the roots is different afterwards."""
    before = git_checksum(*roots)
    yield
    assert git_checksum(*roots) == before, "something in the user's .git has changed"
