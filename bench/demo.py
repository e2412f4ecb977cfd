"""The main job on real input, in well under a minute: an agent wrecks a project, putback puts it back.

The project is made of the sources of installed packages, with what real projects have: a git repository, staged
and unstaged work, untracked data, an empty directory, a link, an executable, a private file. An independent copy
is taken with `cp -a` before the damage, and everything is compared with it afterwards: putback is not asked to
judge itself. Exit code 1 where anything differs. What the agent does is in `agent.py`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("click", "rich", "msgspec", "platformdirs", "pip", "pygments")
FEWEST_FILES = 300
SHOWN_LINES = 6
AGENT = Path(__file__).with_name("agent.py")
BREACHED = 42

# Path below the root -> kind, permission bits, digest of the content (of a link: of its text).
Picture = dict[str, tuple[str, int, str]]


class DemoFailed(Exception):
    """Something was not as it has to be."""


@dataclass
class Demo:
    """A temporary project, a temporary store, and the commands that are shown on them."""

    top: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scripts = str(Path(sys.executable).parent)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.environment = kept | {
            "PATH": scripts + os.pathsep + kept.get("PATH", os.defpath),
            "HOME": str(self.top / "home"),
            "XDG_CONFIG_HOME": str(self.top / "home" / "config"),
            "PUTBACK_STORE": str(self.top / "store"),
            "XDG_STATE_HOME": str(self.top / "store"),
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
        }
        (self.top / "home").mkdir()

    @property
    def project(self) -> Path:
        return self.top / "project"

    @property
    def copy(self) -> Path:
        return self.top / "copy"

    def git(self, *arguments: str) -> None:
        identity = ("-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "gc.auto=0")
        subprocess.run(["git", *identity, *arguments], cwd=self.project, env=self.environment, check=True)

    def putback(
        self, *arguments: str, shown: int = SHOWN_LINES, head: bool = False, code: int = 0, git_too: bool = True
    ) -> None:
        """Run one command as a person would type it; show the end of its output (with `head`, the beginning), and
        that it left `.git` alone.
        """
        before = picture(self.project / ".git")
        print(f"\n$ {shlex.join(['putback', *arguments])}", flush=True)
        began = time.perf_counter()
        done = subprocess.run(
            ["putback", *arguments],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        seconds = time.perf_counter() - began
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        more = f"  ... {len(lines) - shown:,} lines more ..."
        if len(lines) > shown and not head:
            print(more)
        print("\n".join(lines[:shown] if head else lines[-shown:]))
        if len(lines) > shown and head:
            print(more)
        say(f"({seconds:.2f} s, exit code {done.returncode})")
        if done.returncode != code:
            raise DemoFailed(f"putback {arguments[0]} ended with code {done.returncode}")
        if git_too and picture(self.project / ".git") != before:
            raise DemoFailed(f"putback {arguments[0]} touched the user's .git")


def say(text: str) -> None:
    print(f"# {text}", flush=True)


def picture(root: Path) -> Picture:
    """Everything below `root`: directories (also empty ones), files and links, with mode and content."""
    found: Picture = {}
    for folder, directories, names in os.walk(root):
        for name in (*directories, *names):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                entry = ("link", 0, _digest(os.fsencode(os.readlink(path))))
            elif stat.S_ISDIR(status.st_mode):
                entry = ("directory", stat.S_IMODE(status.st_mode), "")
            else:
                with open(path, "rb") as file:
                    entry = ("file", stat.S_IMODE(status.st_mode), _digest(file.read()))
            found[os.path.relpath(path, root)] = entry
    return found


def work_tree(root: Path) -> Picture:
    """The picture of a project without its `.git`."""
    return {path: entry for path, entry in picture(root).items() if path.split(os.sep)[0] != ".git"}


def compare(found: Picture, wanted: Picture, what: str) -> None:
    """Say that two pictures are the same, or raise DemoFailed with the first paths that differ."""
    differing = sorted(path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))
    if differing:
        some = "".join(f"\n    {path}: {found.get(path)} instead of {wanted.get(path)}" for path in differing[:10])
        raise DemoFailed(f"{len(differing)} paths differ from {what}:{some}")
    kinds = [kind for kind, _, _ in wanted.values()]
    say(
        f"OK: identical to {what}: {kinds.count('file'):,} files, {kinds.count('link')} links, "
        f"{kinds.count('directory'):,} directories; content, kinds, modes, empty directories"
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_project(demo: Demo) -> None:
    """A project out of real sources, in the middle of somebody's work."""
    source = demo.project / "src"
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(spec.submodule_search_locations[0], source / name, ignore=ignored)
    files = sorted(path for path in source.rglob("*") if path.is_file())
    if len(files) < FEWEST_FILES:
        raise DemoFailed(f"only {len(files)} source files found to make a project of")
    (demo.project / ".gitignore").write_text("__pycache__/\n*.log\n")
    (demo.project / "run.sh").write_text("#!/bin/sh\nexec python -m click\n")
    (demo.project / "run.sh").chmod(0o755)
    (demo.project / "latest").symlink_to("src/click")
    demo.git("init", "-q", "-b", "main")
    demo.git("add", "-A")
    demo.git("commit", "-q", "-m", "everything so far")
    for path in files[:40:4]:
        with path.open("ab") as file:
            file.write(b"\n# staged work\n")
    demo.git("add", "-u")
    for path in files[1:60:3]:
        with path.open("ab") as file:
            file.write(b"\n# unstaged work of an hour\n")
    (demo.project / "data").mkdir()
    for number in range(50):
        (demo.project / "data" / f"results{number:02d}.csv").write_text(
            f"run,score\n{number},{number * 7 % 13}\n" * 40
        )
    (demo.project / "notes.md").write_text("nobody has committed this yet\n")
    (demo.project / "secret.key").write_text("only I may read this\n")
    (demo.project / "secret.key").chmod(0o600)
    (demo.project / "uploads" / "incoming").mkdir(parents=True)
    (demo.project / "dangling link").symlink_to("../nowhere")
    (demo.project / "caf\u00e9 \u2603.txt").write_text("a name that is not ASCII\n")


def show(demo: Demo) -> None:
    """The whole story. Raises DemoFailed."""
    make_project(demo)
    subprocess.run(["cp", "-a", str(demo.project), str(demo.copy)], check=True)
    original = work_tree(demo.copy)
    say(f"A project of {len(original):,} paths, with staged, unstaged and untracked work in it.")
    say("An independent copy was made with cp -a; all comparisons below are with that copy.")
    say("An agent runs under supervision; it may change 100 files, and ends up somewhere else.")
    run = ("run", "--rollback-on-breach", "--max-files", "100", "--", sys.executable, str(AGENT))
    demo.putback(*run, shown=20, code=BREACHED, git_too=False)
    compare(work_tree(demo.project), original, "the cp -a copy")
    demo.putback("show", "@1", shown=20, head=True)
    demo.putback("verify", "@1", shown=40)

    demo.putback("undo", "--yes")
    wrecked = work_tree(demo.project)
    lost = sum(wrecked.get(path) != entry for path, entry in original.items())
    new = len(wrecked.keys() - original.keys())
    say(f"{lost:,} of {len(original):,} paths are as the agent left them, {new:,} are new.")
    demo.putback("diff", "--stat")
    demo.putback("redo", "--yes")
    compare(work_tree(demo.project), original, "the cp -a copy")

    demo.putback("snapshot", "-m", "before a second agent")
    say("Now an agent runs without supervision.")
    subprocess.run([sys.executable, str(AGENT)], cwd=demo.project, env=demo.environment, check=True)
    demo.putback("restore", "@1", "--exact", "--yes")
    compare(work_tree(demo.project), original, "the cp -a copy")
    demo.putback("list")
    print()
    say(
        "OK: the user's .git has the same checksum before and after every putback command but the agent's own run."
    )


def main() -> int:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="putback-demo-") as folder:
        try:
            show(Demo(Path(os.path.realpath(folder))))
        except DemoFailed as failed:
            print(f"\nFAILED: {failed}", file=sys.stderr)
            return 1
    say(f"All as it should be, in {time.perf_counter() - began:.1f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
