"""A bare sha256 repository and the real git, for tests of what putback writes into one by itself."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from putback.git.index import Entries, git_mode, make_record
from putback.git.objectid import object_id

ODD_NAMES = [
    b"plain",
    b"new\nline",
    b"tab\there",
    b"-dash",
    b"back\\slash",
    b"not-utf8-\xff\xfe",
    b"git~1",
    b'quo"te',
    b" space ",
    b"sub/file",
    b"sub.file",
    b"sub-dir/a",
    b"sub0",
    b"sub/deeper/x",
    b"empty",
    b"/".join([b"d%d" % depth for depth in range(40)]) + b"/leaf",
    b"/".join([b"n" * 250] * 12) + b"/long",
]


@dataclass
class Bare:
    """A bare repository, a work tree beside it, and a private index."""

    base: Path

    @property
    def dir(self) -> Path:
        return self.base / "objects.git"

    @property
    def tree(self) -> Path:
        return self.base / "tree"

    @property
    def index(self) -> Path:
        return self.base / "index"

    @property
    def packs(self) -> Path:
        return self.dir / "objects" / "pack"

    @property
    def scratch(self) -> Path:
        return self.base / "scratch"

    def git(self, *arguments: str, given: bytes = b"") -> bytes:
        sealed = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.base),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_INDEX_FILE": str(self.index),
            "LC_ALL": "C",
        }
        places = [f"--git-dir={self.dir}", f"--work-tree={self.tree}", "-c", "core.protectNTFS=false"]
        done = subprocess.run(
            ["git", *places, *arguments], env=sealed, cwd=self.tree, input=given, capture_output=True
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def write(self, name: bytes, data: bytes = b"", *, executable: bool = False) -> None:
        path = os.path.join(os.fsencode(self.tree), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        if executable:
            os.chmod(path, 0o755)

    def link(self, name: bytes, text: bytes) -> None:
        os.symlink(text, os.path.join(os.fsencode(self.tree), name))

    def lstat(self, name: bytes) -> os.stat_result:
        return os.lstat(os.path.join(os.fsencode(self.tree), name))

    def record(self, name: bytes) -> bytes:
        st = self.lstat(name)
        mode = git_mode(st.st_mode)
        assert mode is not None
        path = os.path.join(os.fsencode(self.tree), name)
        data = os.readlink(path) if os.path.islink(path) else Path(os.fsdecode(path)).read_bytes()
        return make_record(st, mode, object_id("blob", data))

    def records(self, names: list[bytes]) -> Entries:
        return {name: self.record(name) for name in names}

    def add_with_git(self, names: list[bytes]) -> None:
        self.git("update-index", "--add", "-z", "--stdin", given=b"\0".join(names) + b"\0")

    def fsck(self) -> None:
        # `git~1` is a name like any other where we run; fsck thinks of NTFS.
        out = self.git("-c", "fsck.hasDotgit=ignore", "fsck", "--full", "--strict", "--no-dangling")
        assert b"error" not in out and b"missing" not in out, out


def make_bare(base: Path) -> Bare:
    bare = Bare(base)
    bare.tree.mkdir()
    bare.scratch.mkdir()
    subprocess.run(
        ["git", "init", "-q", "--bare", "--template=", "--object-format=sha256", str(bare.dir)],
        env={"PATH": os.environ["PATH"], "HOME": str(base), "GIT_CONFIG_NOSYSTEM": "1"},
        check=True,
    )
    return bare
