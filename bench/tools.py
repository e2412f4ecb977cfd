"""What is compared: one small class per competitor, with the same methods.

A method gives the commands to run, or None where the tool has no such operation. Nothing here measures.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import Command
from bench.trees import Tree

Commands = Sequence[Command] | None

PUTBACK_SETTINGS = ("store.min_free_bytes=0", "capture.max_new_bytes=20000000000")


@dataclass
class Tool:
    """One competitor on one tree. `place` is a directory of its own for its store and its caches."""

    tree: Tree
    place: Path
    base_environment: Mapping[str, str] = field(repr=False)

    name = ""
    program = ""
    # How many files a tree may have for the operations that repeat a capture fifty times.
    patience = 10_000

    @classmethod
    def available(cls) -> bool:
        return shutil.which(cls.program) is not None

    def prepare(self) -> Commands:
        """Make an empty store, where the tool wants one made."""
        return ()

    def capture(self) -> Commands:
        """Record the tree as it is now."""
        return None

    def pack(self) -> Commands:
        """Make the store as small as the tool can."""
        return None

    def diff(self) -> Commands:
        """Summarize how the tree differs from the last capture."""
        return None

    def restore(self) -> Commands:
        """Put the tree back to the last capture, exactly."""
        return None

    def supervised(self) -> Commands:
        """Record the tree, run a command that does nothing, and record the tree again."""
        return None

    def bind(self) -> Commands:
        """Make ready for turns."""
        return ()

    def begin(self, paths: Sequence[str]) -> Commands:
        """Record the beginning of a turn at these paths."""
        return None

    def seal(self) -> Commands:
        """Record its end, staged and unstaged."""
        return None

    def after_seal(self) -> Commands:
        """Have the end of the turn stand there again."""
        return ()

    def apply(self, paths: Sequence[str]) -> Commands:
        """Put these paths back to the beginning of the turn, in the index and in the work tree."""
        return None

    def list(self) -> Commands:
        """Show what has been captured."""
        return None

    def hook(self, event: str) -> Commands:
        """What an agent calls at an event of this name."""
        return None

    @property
    def environment(self) -> dict[str, str]:
        return dict(self.base_environment)

    @property
    def store(self) -> Path:
        return self.place / "store"

    def command(self, *arguments: str | Path) -> Command:
        return Command([str(argument) for argument in arguments], self.tree.root, self.environment)


class Putback(Tool):
    name = "putback"
    patience = 1_000_000

    @classmethod
    def available(cls) -> bool:
        return True

    def capture(self) -> Commands:
        return [self._putback("snapshot", "-m", "x")]

    def pack(self) -> Commands:
        opened = f"Workspace.open({str(self.tree.root)!r}, store={str(self.store)!r})"
        program = f"from putback.workspace import Workspace; {opened}.upkeep.reclaim()"
        return [self.command(sys.executable, "-c", program)]

    def diff(self) -> Commands:
        return [self._putback("diff", "@1", "--stat")]

    def restore(self) -> Commands:
        return [self._putback("restore", "@1", "--exact", "--yes"), self.command("sync", "-f", ".")]

    def supervised(self) -> Commands:
        return [self._putback("run", "--snapshot", "--", "true")]

    def bind(self) -> Commands:
        return [self._putback("turn", "bind")]

    def begin(self, paths: Sequence[str]) -> Commands:
        return [self._putback("turn", "begin", "--turn", "bench", *paths)]

    def seal(self) -> Commands:
        return [self._putback("turn", "seal")]

    def apply(self, paths: Sequence[str]) -> Commands:
        """The proposal is asked for here, and so not measured: a person would be reading it now."""
        asked = self._putback("--json", "turn", "prepare")
        answer = subprocess.run(
            asked.arguments, cwd=asked.directory, env=dict(asked.environment), capture_output=True, check=False
        )
        proposal = json.loads(answer.stdout).get("proposal", "")
        words = ("--proposal", proposal, "--actor", "bench", "--reason", "bench", "--yes")
        return [self._putback("turn", "apply", *words)]

    def list(self) -> Commands:
        return [self._putback("list")]

    def hook(self, event: str) -> Commands:
        named = {"file_path": str(self.tree.root / "named-by-a-tool")}
        sent = {"hook_event_name": event, "session_id": "bench", "cwd": str(self.tree.root), "prompt": "bench"}
        more = {"tool_name": "Write", "tool_input": named} if event == "PreToolUse" else {}
        script = Path(sys.executable).with_name("putback")
        environment = {**self.environment, "PUTBACK_STORE": str(self.store)}
        given = json.dumps(sent | more).encode()
        return [Command([str(script), "hook", "claude-code"], self.tree.root, environment, given)]

    def _putback(self, *arguments: str) -> Command:
        script = Path(sys.executable).with_name("putback")
        program = [str(script)] if script.exists() else [sys.executable, "-m", "putback"]
        settings = [word for setting in PUTBACK_SETTINGS for word in ("-c", setting)]
        return self.command(*program, "-C", self.tree.root, "--store", self.store, *settings, *arguments)


class Shadow(Tool):
    """A second git repository over the same work tree: what one would do with git alone.

    Default configuration, but without the collector, which would run beside the next measurement.
    """

    name = "shadow"
    program = "git"
    patience = 1_000_000

    def prepare(self) -> Commands:
        return [self.command("git", "init", "-q", "--bare", self.store)]

    def capture(self) -> Commands:
        return [self._git("add", "-A"), self._git("commit", "-q", "--allow-empty", "-m", "x")]

    def pack(self) -> Commands:
        return [self._git("gc", "-q", "--prune=now")]

    def diff(self) -> Commands:
        return [self._git("diff", "--stat", "HEAD")]

    def restore(self) -> Commands:
        return [self._git("reset", "-q", "--hard"), self._git("clean", "-fdq"), self.command("sync", "-f", ".")]

    def supervised(self) -> Commands:
        return [*self.capture(), self.command("true"), *self.capture()]

    def list(self) -> Commands:
        return [self._git("log", "--oneline")]

    def _git(self, *arguments: str) -> Command:
        settings = ("-c", "gc.auto=0", "-c", "user.name=bench", "-c", "user.email=bench@localhost")
        where = (f"--git-dir={self.store}", f"--work-tree={self.tree.root}")
        return self.command("git", *where, *settings, *arguments)


class Restic(Tool):
    name = "restic"
    program = "restic"

    @property
    def environment(self) -> dict[str, str]:
        repository = {"RESTIC_REPOSITORY": str(self.store), "RESTIC_PASSWORD": "bench"}
        return super().environment | repository | {"RESTIC_CACHE_DIR": str(self.place / "cache")}

    def prepare(self) -> Commands:
        return [self.command("restic", "-q", "init")]

    def capture(self) -> Commands:
        excluded = (f"--exclude={self.tree.root / name}" for name in (".git", "build"))
        return [self.command("restic", "-q", "backup", *excluded, self.tree.root)]

    def list(self) -> Commands:
        return [self.command("restic", "-q", "snapshots")]


class Borg(Tool):
    name = "borg"
    program = "borg"

    @property
    def environment(self) -> dict[str, str]:
        answers = {"BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes", "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes"}
        return super().environment | answers | {"BORG_REPO": str(self.store), "BORG_BASE_DIR": str(self.place)}

    def prepare(self) -> Commands:
        return [self.command("borg", "init", "-e", "none")]

    def capture(self) -> Commands:
        return [self.command("borg", "create", "-e", "./.git", "-e", "./build", "::{utcnow:%s.%f}", ".")]

    def list(self) -> Commands:
        return [self.command("borg", "list")]


class Copy(Tool):
    """`cp -a` of everything but `.git`. It has no second capture that is cheaper than the first."""

    name = "cp -a"
    program = "cp"
    patience = 0

    def prepare(self) -> Commands:
        return [self.command("mkdir", "-p", self.store)]

    def capture(self) -> Commands:
        names = sorted(path.name for path in self.tree.root.iterdir() if path.name != ".git")
        return [self.command("cp", "-a", "--", *names, self.store)]


class GitStatus(Tool):
    """What the user's own git needs to see that nothing changed. Stores nothing."""

    name = "git status"
    program = "git"
    patience = 0

    def capture(self) -> Commands:
        return [self.command("git", "status", "--porcelain")]


class UserGit(Tool):
    """The user's own git, on their own repository: what one would do about a turn without putback."""

    name = "git"
    program = "git"
    patience = 0

    def seal(self) -> Commands:
        identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
        return [self.command("git", *identity, "stash", "push", "-q")]

    def after_seal(self) -> Commands:
        return [self.command("git", "stash", "pop", "-q", "--index")]

    def apply(self, paths: Sequence[str]) -> Commands:
        reset = self.command("git", "reset", "-q", "HEAD", "--", *paths)
        return [reset, self.command("git", "checkout", "-q", "--", *paths)]


class Floor(Tool):
    """What cannot be beaten: a stat of every file, and the start of an interpreter. Stores nothing."""

    name = "floor"
    program = "find"
    patience = 0

    def capture(self) -> Commands:
        return [self.command("find", ".", "-path", "./.git", "-prune", "-o", "-printf", "%s %T@\\n")]

    def begin(self, paths: Sequence[str]) -> Commands:
        return [self.command(sys.executable, "-m", "putback", "--version")]

    def list(self) -> Commands:
        return [self.command(sys.executable, "-c", "pass")]

    def hook(self, event: str) -> Commands:
        return self.list()


STORING: tuple[type[Tool], ...] = (Putback, Shadow, Restic, Borg, Copy)
REFERENCES: tuple[type[Tool], ...] = (GitStatus, UserGit, Floor)
EVERY = (*STORING, *REFERENCES)
