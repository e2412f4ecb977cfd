"""Deterministic trees to measure on, and deterministic changes to them.

Every path is computed from the number of its file, so that no list of 100,000 names is ever in memory: a child
process inherits the peak memory of its parent, and this process is everybody's parent here.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FILES_IN_A_DIRECTORY = 40
DIRECTORIES_IN_A_PACKAGE = 12
IGNORED_FILES = 60
SIZES = (200, 1_000, 4_000, 9_000, 26_000)
TEXT_BYTES = 1 << 20
REVISED_TEXT_BYTES = 5 << 20
WORDS = (
    'alpha beta(gamma) delta = return import yield lambda: 0x1f [item] if not None:\n else:\n "text" \n self. \n'
)
GITIGNORE = "*.pyc\n__pycache__/\nnode_modules/\n/build/\n!build/keep\n.venv\n*.log\n*.egg-info\n"


@dataclass(frozen=True)
class Tree:
    """A tree of `files` numbered files below `root`, which is also a git repository with one commit."""

    root: Path
    files: int

    def path(self, number: int) -> Path:
        """Where file `number` is: 40 files a directory, three levels deep."""
        directory = number // FILES_IN_A_DIRECTORY
        package, part = divmod(directory, DIRECTORIES_IN_A_PACKAGE)
        return self.root / f"package{package:03d}" / f"part{part % 4}" / f"unit{part:02d}" / f"module{number}.py"

    def spread(self, count: int, salt: int = 0) -> Iterator[Path]:
        """`count` different files, all over the tree; the same ones for the same salt."""
        for step in range(count):
            yield self.path((step * self.files // count + salt) % self.files)

    def edit(self, count: int, salt: int, turn: int) -> None:
        """Add a line to each of `count` files, chosen by `salt`."""
        for path in self.spread(count, salt):
            with path.open("a") as file:
                file.write(f"# edited {salt} {turn}\n")

    def damage(self, count: int, turn: int) -> None:
        """Change 70 %, delete 20 % and add 10 % of `count` files."""
        changed, deleted = count * 7 // 10, count * 2 // 10
        for step, path in enumerate(self.spread(changed + deleted, turn)):
            if step % 9 < 7:
                with path.open("a") as file:
                    file.write(f"# damaged {turn}\n")
            else:
                path.unlink()
        for step, path in enumerate(self.spread(count - changed - deleted, turn + 1)):
            path.with_name(f"added{step}.py").write_text(f"added {turn} {step}\n")

    def fingerprint(self) -> str:
        """A digest of path, size and mode of every file outside `.git`: cheap, and shows a restore that failed."""
        find = ["find", ".", "-path", "./.git", "-prune", "-o", "-type", "f", "-printf", "%p %s %m\\n"]
        pipe = subprocess.Popen(find, cwd=self.root, stdout=subprocess.PIPE)
        ordered = subprocess.Popen(["sort"], stdin=pipe.stdout, stdout=subprocess.PIPE)
        digest = subprocess.run(["sha256sum"], stdin=ordered.stdout, stdout=subprocess.PIPE, check=True)
        pipe.wait()
        ordered.wait()
        return digest.stdout.decode()


@dataclass(frozen=True)
class Text(Tree):
    """A tree of one long text, which each edit changes in a few places."""

    def path(self, number: int) -> Path:
        return self.root / "long.txt"

    def edit(self, count: int, salt: int, turn: int) -> None:
        """Change `count` lines of the text."""
        lines = self.path(0).read_text().splitlines(keepends=True)
        chance = random.Random(turn)
        for _ in range(count):
            lines[chance.randrange(len(lines))] = f"line {chance.getrandbits(200):050x}\n"
        self.path(0).write_text("".join(lines))


def build_text(root: Path) -> Text:
    """Make the tree of one text, without a repository of the user's."""
    tree = Text(root, 1)
    root.mkdir()
    chance = random.Random(REVISED_TEXT_BYTES)
    words = [word.strip() for word in WORDS.split(" ") if word.strip()]
    with tree.path(0).open("w") as file:
        while file.tell() < REVISED_TEXT_BYTES:
            file.write(" ".join(chance.choices(words, k=9)) + f" {chance.getrandbits(48):x}\n")
    return tree


def build(root: Path, files: int, environment: Mapping[str, str]) -> Tree:
    """Make the tree and the user's repository in it."""
    tree = Tree(root, files)
    chance = random.Random(files)
    words = WORDS.split(" ")
    text = " ".join(chance.choices(words, k=TEXT_BYTES // 5)).encode()
    made: Path | None = None
    for number in range(files):
        path = tree.path(number)
        if path.parent != made:
            made = path.parent
            made.mkdir(parents=True, exist_ok=True)
        size = chance.choice(SIZES)
        start = chance.randrange(len(text) - size)
        with open(path, "wb", buffering=0) as file:
            file.write(b"# module %d %d\n" % (number, chance.getrandbits(62)) + text[start : start + size])
    (root / ".gitignore").write_text(GITIGNORE)
    (root / "build").mkdir()
    for number in range(IGNORED_FILES):
        (root / "build" / f"output{number}.o").write_bytes(os.urandom(2_000))
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "everything"]):
        command = ["git", "-c", "gc.auto=0", "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        subprocess.run([*command, *arguments], cwd=root, env=dict(environment), check=True)
    return tree
